//! A server with one resource of each kind, a client for each principal, and a fingerprint of the store.

use crate::support::{World, read_answer};
use crate::table::{Disguise, Mode, Op, Principal, Scope};
use headwater_protocol::auth::{self, EMULATOR_KEY, Key, Signable};
use headwater_protocol::route;
use headwater_store::ResourceType;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SECONDARY: &str = "c2Vjb25kYXJ5";
const READ_ONLY: &str = "cmVhZC1vbmx5";
const SECONDARY_READ_ONLY: &str = "c2Vjb25kLXJlYWQ=";
const PARTITION_KEY: &str = "x-ms-documentdb-partitionkey";

pub(crate) struct Stage {
    world: World,
    offer: String,
}

fn key(text: &str) -> Key {
    Key::from_base64(text).unwrap()
}

impl Stage {
    pub(crate) async fn new() -> Stage {
        let world = World::with(|config| {
            config.keys.secondary = Some(key(SECONDARY));
            config.keys.primary_read_only = Some(key(READ_ONLY));
            config.keys.secondary_read_only = Some(key(SECONDARY_READ_ONLY));
            config.limits.wait_max = Duration::from_millis(5);
        });
        let world = world.await.with_container().await;
        let make = async |path: &str, head: &[(&str, &str)], body: &str| {
            let made = world.send("POST", path, head, body).await;
            assert_eq!(made.status, 201, "{path}: {made:?}");
        };
        let docs = "/dbs/db/colls/c/docs";
        make(docs, &[(PARTITION_KEY, r#"["a"]"#)], r#"{"id":"1","pk":"a"}"#).await;
        make(docs, &[(PARTITION_KEY, r#"["b"]"#)], r#"{"id":"2","pk":"b"}"#).await;
        let source = "function () { var all = getContext().getCollection(); \
                      all.upsertDocument(all.getSelfLink(), { id: 'by-procedure', pk: 'a' }); }";
        let procedure = json!({ "id": "w", "body": source }).to_string();
        make("/dbs/db/colls/c/sprocs", &[], &procedure).await;
        let script = r#"{"id":"r","body":"function () {}"}"#;
        make("/dbs/db/colls/c/sprocs", &[], script).await;
        make("/dbs/db/colls/c/udfs", &[], &script.replace("\"r\"", "\"f\"")).await;
        let trigger =
            r#"{"id":"t","body":"function () {}","triggerType":"Pre","triggerOperation":"All"}"#;
        make("/dbs/db/colls/c/triggers", &[], trigger).await;
        for user in ["Read", "All", "zoe"] {
            make("/dbs/db/users", &[], &json!({ "id": user }).to_string()).await;
        }
        let permission =
            r#"{"id":"p","permissionMode":"All","resource":"dbs/db/colls/c"}"#.to_owned();
        make("/dbs/db/users/zoe/permissions", &[], &permission).await;
        let encryption = r#"{"id":"k","encryptionAlgorithm":"a","wrappedDataEncryptionKey":"b","keyWrapMetadata":{}}"#;
        make("/dbs/db/clientencryptionkeys", &[], encryption).await;
        let offers = world.account.resources(ResourceType::Offer, None);
        Stage { offer: offers[0].rid.to_string(), world }
    }

    /// A text that changes with anything that a request could change.
    pub(crate) fn fingerprint(&self) -> String {
        let mut text = String::new();
        let account = &self.world.account;
        for database in account.databases() {
            text.push_str(&format!("{} {:?}\n", database.id(), database.etag()));
            for container in database.containers() {
                text.push_str(&format!("  {} {:?}", container.rid(), container.etag()));
                for range in container.ranges() {
                    text.push_str(&format!(" {}:{}", range.id, range.lsn));
                }
            }
        }
        use ResourceType as Kind;
        for kind in [
            Kind::Offer,
            Kind::User,
            Kind::Permission,
            Kind::ClientEncryptionKey,
            Kind::StoredProcedure,
            Kind::Trigger,
            Kind::UserDefinedFunction,
        ] {
            for resource in account.resources(kind, None) {
                text.push_str(&format!("\n{kind:?} {} {}", resource.id, resource.etag));
            }
        }
        text
    }

    pub(crate) async fn client(&self, principal: Principal) -> Client<'_> {
        let credential = match principal {
            Principal::Nobody => Credential::None,
            Principal::Primary => Credential::Key(key(EMULATOR_KEY)),
            Principal::Secondary => Credential::Key(key(SECONDARY)),
            Principal::ReadOnly => Credential::Key(key(READ_ONLY)),
            Principal::SecondaryReadOnly => Credential::Key(key(SECONDARY_READ_ONLY)),
            Principal::Token(scope, mode) => Credential::Token(self.token(scope, mode).await),
        };
        Client { stage: self, credential, stream: self.world.connect().await }
    }

    async fn token(&self, scope: Scope, mode: Mode) -> String {
        let resource = match scope {
            Scope::Database => "dbs/db",
            Scope::Container | Scope::Key => "dbs/db/colls/c",
            Scope::Item => "dbs/db/colls/c/docs/1",
        };
        let mode = format!("{mode:?}");
        let mut body = json!({ "id": "p", "permissionMode": mode, "resource": resource });
        if scope == Scope::Key {
            body["resourcePartitionKey"] = json!(["a"]);
        }
        let path = format!("/dbs/db/users/{mode}/permissions");
        let made = self.world.send("POST", &path, &[], &body.to_string()).await;
        assert_eq!(made.status, 201, "{made:?}");
        let token = made.json()["_token"].as_str().unwrap().to_owned();
        token.bytes().map(|byte| format!("%{byte:02x}")).collect()
    }

    pub(crate) async fn stop(self) {
        self.world.stop().await;
    }
}

enum Credential {
    None,
    Key(Key),
    Token(String),
}

/// A connection of one principal.
pub(crate) struct Client<'a> {
    stage: &'a Stage,
    credential: Credential,
    stream: TcpStream,
}

impl Client<'_> {
    /// Sends a request and returns the status of the response.
    pub(crate) async fn send(&mut self, op: &Op, disguise: &Disguise) -> u16 {
        let path = op.path.replace("{offer}", &self.stage.offer);
        let mut text = format!(
            "{} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\
             x-ms-version: 2020-07-15\r\n{PARTITION_KEY}: [\"a\"]\r\n",
            op.verb,
            op.body.len()
        );
        text.push_str(&self.authorization(op.verb, &path));
        for (name, value) in &disguise.head {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(op.body);
        if path.starts_with("/_headwater/changes/") {
            return self.status_of_stream(&text).await;
        }
        self.stream.write_all(text.as_bytes()).await.unwrap();
        let got = read_answer(&mut self.stream).await;
        got.unwrap_or_else(|what| panic!("{} as {}: {what}", op.name, disguise.name)).status
    }

    fn authorization(&self, verb: &str, path: &str) -> String {
        match &self.credential {
            Credential::None => String::new(),
            Credential::Token(token) => format!("authorization: {token}\r\n"),
            Credential::Key(key) => {
                let date = self.stage.world.date();
                // Extensions about a container are signed as requests for the container.
                let is_ours = path.starts_with("/_headwater/") && !path.contains("/backups");
                let path = if is_ours { "/dbs/db/colls/c" } else { path };
                let route = route::parse(path).unwrap();
                let links = route.links_for(path);
                let links = links.candidates();
                let (resource_type, x_ms_date) = (route.resource_type(), Some(date.as_str()));
                let signable =
                    Signable { verb, resource_type, links: &links, x_ms_date, date: None };
                let signed = auth::sign(key, &signable);
                format!("x-ms-date: {date}\r\nauthorization: {signed}\r\n")
            }
        }
    }

    /// An event stream does not end, so it gets its own connection, and only its status line is read.
    async fn status_of_stream(&self, request: &str) -> u16 {
        let mut stream = self.stage.world.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        std::str::from_utf8(&start[9..]).unwrap().parse().unwrap()
    }
}
