//! Explains failed requests to an object store, with a remedy for the user.

use super::cloud::Cloud;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use std::time::Duration;

/// A failed request. It omits the query of its URL, which may be a signature.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    host: String,
    path: String,
    reason: Reason,
}

#[derive(Clone, Debug)]
enum Reason {
    PlainHttp,
    TimedOut(Duration),
    /// The answer is missing or incomplete.
    Broken(String),
    Refused {
        status: StatusCode,
        /// The error code of the service, such as `NoSuchBucket`.
        code: String,
        writes: bool,
    },
}

/// Codes of a container or bucket that does not exist.
const NO_CONTAINER: [&str; 3] = ["ContainerNotFound", "NoSuchBucket", "ResourceNotFound"];

/// Error codes of an invalid credential, as opposed to one that lacks a permission.
const BAD_CREDENTIAL: [&str; 8] = [
    "AuthenticationFailed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidSecurity",
    "InvalidToken",
    "NoAuthenticationInformation",
    "SignatureDoesNotMatch",
];

impl Failure {
    pub(super) fn plain_http(uri: &Uri) -> Failure {
        Failure::new(uri, Reason::PlainHttp)
    }

    pub(super) fn timed_out(uri: &Uri, after: Duration) -> Failure {
        Failure::new(uri, Reason::TimedOut(after))
    }

    pub(super) fn broken(uri: &Uri, cause: String) -> Failure {
        Failure::new(uri, Reason::Broken(cause))
    }

    pub(super) fn refused(
        method: &Method,
        uri: &Uri,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Failure {
        let header = headers.get("x-ms-error-code").and_then(|code| code.to_str().ok());
        let code = header.map(str::to_owned).or_else(|| element(body, "Code")).unwrap_or_default();
        let writes = !matches!(*method, Method::GET | Method::HEAD);
        Failure::new(uri, Reason::Refused { status, code, writes })
    }

    fn new(uri: &Uri, reason: Reason) -> Failure {
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        Failure { host, path: uri.path().to_owned(), reason }
    }

    /// Returns the cause in a few words.
    pub(super) fn cause(&self) -> String {
        match &self.reason {
            Reason::PlainHttp => "plain HTTP is not allowed".to_owned(),
            Reason::TimedOut(after) => format!("no answer within {} s", after.as_secs()),
            Reason::Broken(cause) => cause.clone(),
            Reason::Refused { status, code, .. } if code.is_empty() => status.to_string(),
            Reason::Refused { status, code, .. } => format!("{} {code}", status.as_u16()),
        }
    }

    /// Returns the full message: what happened, to which container, and what to do next.
    pub(super) fn explain(&self, cloud: Cloud, container: &str) -> String {
        let (host, cause, what) = (&self.host, self.cause(), cloud.container_word());
        if let Reason::PlainHttp = self.reason {
            return format!(
                "plain HTTP to {host} would show the credentials to the network. Use an https endpoint, or \
                 allow it with {}=true",
                cloud.allow_http_variable()
            );
        }
        if !self.names(container) {
            return format!(
                "there are no usable credentials: {host}, which was asked for some, failed ({cause}). {}",
                cloud.credentials_remedy()
            );
        }
        match &self.reason {
            Reason::Refused { code, .. } if NO_CONTAINER.contains(&code.as_str()) => format!(
                "there is no {what} {container} at {host}. Create it first, or correct the name and {}",
                cloud.endpoint_variables()
            ),
            Reason::Refused { status, code, .. }
                if *status == StatusCode::UNAUTHORIZED
                    || BAD_CREDENTIAL.contains(&code.as_str()) =>
            {
                format!(
                    "{host} does not accept the credentials ({cause}). {}",
                    cloud.credentials_remedy()
                )
            }
            Reason::Refused { status: StatusCode::FORBIDDEN, writes, .. } => {
                let (verb, rights) = match writes {
                    true => ("write to", "to write, list and delete"),
                    false => ("read", "to read and list"),
                };
                format!(
                    "the credentials are wrong or may not {verb} the {what} {container} at {host} ({cause}). Give \
                     them the right {rights} objects there, or use others"
                )
            }
            Reason::Refused { status, .. } if status.is_redirection() => format!(
                "the {what} {container} is not at {host} ({cause}). Correct {}",
                cloud.endpoint_variables()
            ),
            Reason::Refused { .. } => format!(
                "{host} refuses the request ({cause}). Check the name of the {what} and {}",
                cloud.endpoint_variables()
            ),
            _ => format!(
                "cannot reach {host}: {cause}. Check the network and {}",
                cloud.endpoint_variables()
            ),
        }
    }

    /// Returns whether the request was for the container, and not for credentials.
    fn names(&self, container: &str) -> bool {
        self.path.split('/').any(|part| part == container)
            || self.host.strip_prefix(container).is_some_and(|rest| rest.starts_with('.'))
    }
}

/// Returns the text of an XML element without attributes.
fn element(xml: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(xml);
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once("</")?;
    Some(value.chars().take(100).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expected: &str) {
        let uri = "https://s3.example/bucket/shop/backup/BACKUP.json?signature=secret";
        let failure = Failure::refused(
            &Method::PUT,
            &uri.parse().unwrap(),
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            body.as_bytes(),
        );
        let said = failure.explain(Cloud::Amazon, "bucket");
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let body = |code: &str| format!("<?xml?><Error><Code>{code}</Code></Error>");
        check(404, &body("NoSuchBucket"), "there is no bucket bucket at s3.example. Create it");
        check(403, &body("SignatureDoesNotMatch"), "Set AWS_ACCESS_KEY_ID");
        check(403, &body("AccessDenied"), "may not write to the bucket bucket");
        check(301, &body("PermanentRedirect"), "Correct AWS_REGION");
        check(400, "", "refuses the request (400 Bad Request)");
    }

    #[test]
    fn a_bucket_may_be_a_part_of_the_host() {
        let uri = "https://a.b.s3.example/shop".parse().unwrap();
        let failure = Failure::broken(&uri, "closed".to_owned());
        let said = failure.explain(Cloud::Amazon, "a.b");
        assert!(said.contains("cannot reach a.b.s3.example: closed"), "{said}");
    }

    #[test]
    fn a_failed_request_for_credentials_is_no_failure_of_the_container() {
        let uri = "http://169.254.169.254/latest/api/token".parse().unwrap();
        let failure = Failure::timed_out(&uri, Duration::from_secs(3));
        let said = failure.explain(Cloud::Amazon, "bucket");
        assert!(said.contains("no usable credentials"), "{said}");
    }
}
