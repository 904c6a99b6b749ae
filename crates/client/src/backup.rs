//! Backups: reads the files of a whole account at one point in time. Headwater only.
//!
//! The server holds a snapshot until the backup ends, or has had no request for a while. This module does not
//! interpret the files or store the backup: it returns bytes.

use crate::client::Client;
use crate::error::ClientError;
use crate::request::Request;
use bytes::Bytes;
use headwater_protocol::headers;
use headwater_protocol::route::Route;
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;

/// Additional time for a request that scans every item of a partition.
const STATE_TIME: Duration = Duration::from_secs(600);

/// A backup that the server holds for this client.
#[derive(Clone, Debug)]
pub struct Backup {
    client: Client,
    id: String,
    plan: String,
}

#[derive(Deserialize)]
struct Begun<'a> {
    id: String,
    #[serde(borrow)]
    plan: &'a RawValue,
}

impl Client {
    /// Starts a backup: the server holds a snapshot of the account. Needs a read-write key.
    ///
    /// # Errors
    /// When the server refuses, cannot be reached, or is not a Headwater server.
    pub async fn begin_backup(&self) -> Result<Backup, ClientError> {
        let answer = self.send(Request::new(Method::POST, &Route::Backups)).await?;
        let begun: Begun<'_> = serde_json::from_slice(&answer.body)
            .map_err(|error| self.bad_answer(error.to_string()))?;
        Ok(Backup { client: self.clone(), id: begun.id, plan: begun.plan.get().to_owned() })
    }
}

impl Backup {
    /// The list of files to copy, as JSON.
    #[must_use]
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// Reads the contents of a partition, as JSON.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached.
    pub async fn partition(&self, number: usize) -> Result<Bytes, ClientError> {
        let route = Route::BackupPartition { id: self.id.clone(), number };
        let request = Request::new(Method::GET, &route);
        Ok(self.client.send(Request { wait: STATE_TIME, ..request }).await?.body)
    }

    /// Reads a part of a file; `None` if its checksum is the known one.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached.
    pub async fn read(
        &self,
        file: usize,
        offset: u64,
        bytes: usize,
        known: Option<&str>,
    ) -> Result<Option<Bytes>, ClientError> {
        let route = Route::BackupFile { id: self.id.clone(), number: file };
        let known = known.map(|known| format!("\"{known}\""));
        let mut request =
            Request::new(Method::GET, &route).header_if(headers::IF_NONE_MATCH, known);
        request.path.push_str(&format!("?offset={offset}&bytes={bytes}"));
        let answer = self.client.send(request).await?;
        Ok((answer.status != 304).then_some(answer.body))
    }

    /// Ends the backup, which releases the snapshot.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; it then releases the backup after a while.
    pub async fn end(self) -> Result<(), ClientError> {
        let route = Route::Backup { id: self.id.clone() };
        self.client.send(Request::new(Method::DELETE, &route)).await.map(drop)
    }
}
