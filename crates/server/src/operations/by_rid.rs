//! Finds an item by its resource id, for clients that address items by `_self`.
//!
//! Items are stored by partition key and id; there is no index by resource id. A replacement contains the id in
//! its body, so it costs one read. Other methods scan the items of the partition key, which is slow for many
//! items and therefore limited.

use super::Target;
use crate::failure::Failure;
use headwater_model::{ItemRid, PageLimit, PartitionKey};
use headwater_store::{Item, ScanScope};
use serde::Deserialize;

/// The maximum number of items scanned.
const LOOKED_MAX: usize = 100_000;
const PAGE: (u32, u32) = (1000, 4 << 20);

#[derive(Deserialize)]
struct Names {
    id: String,
    #[serde(default, rename = "_rid")]
    rid: String,
}

/// Whether a name may be the resource id of an item of this container.
pub(super) fn may_be(target: &Target, named: &str) -> bool {
    ItemRid::parse(named).is_ok_and(|rid| rid.container == target.container.rid())
}

/// Returns the item's id if the path names it by resource id; `None` if the path already has the id.
pub(super) async fn id_of(
    target: &Target,
    named: &str,
    key: Option<&PartitionKey>,
    body: &[u8],
) -> Result<Option<String>, Failure> {
    let container = &target.container;
    let Some(key) = key.filter(|_| may_be(target, named)) else {
        return Ok(None);
    };
    // An id may look like a resource id; an existing item with that id takes precedence.
    if container.read(key.clone(), named).await?.is_some() {
        return Ok(None);
    }
    if let Ok(names) = serde_json::from_slice::<Names>(body) {
        let item = container.read(key.clone(), &names.id).await?;
        if item.and_then(|item| with_rid(&item, named)).is_some() {
            return Ok(Some(names.id));
        }
    }
    look_for(target, named, key).await
}

/// Whether two names within a partition key, each an id or a resource id, denote the same item.
pub(super) async fn is_same(
    target: &Target,
    key: &PartitionKey,
    one: &str,
    other: &str,
) -> Result<bool, Failure> {
    let one_id = id_of(target, one, Some(key), &[]).await?;
    let other_id = id_of(target, other, Some(key), &[]).await?;
    // Two unresolved names are different ids: the caller has already compared them as text.
    Ok((one_id.is_some() || other_id.is_some())
        && one_id.as_deref().unwrap_or(one) == other_id.as_deref().unwrap_or(other))
}

async fn look_for(
    target: &Target,
    rid: &str,
    key: &PartitionKey,
) -> Result<Option<String>, Failure> {
    let (scope, limit) = (ScanScope::Key(key.clone()), PageLimit::new(PAGE.0, PAGE.1)?);
    let (mut after, mut looked) = (None, 0);
    loop {
        let page = target.container.scan(&scope, after.as_ref(), limit).await?;
        if let Some(id) = page.items.iter().find_map(|item| with_rid(item, rid)) {
            return Ok(Some(id));
        }
        looked += page.items.len();
        match page.next {
            None => return Ok(None),
            Some(_) if looked >= LOOKED_MAX => {
                let message = "the partition key holds too many items to find one by its _rid; \
                               address it by its id";
                return Err(Failure::bad_request(message));
            }
            next => after = next,
        }
    }
}

/// The item's id, if `rid` is its resource id.
fn with_rid(item: &Item, rid: &str) -> Option<String> {
    let names: Names = item.parse().ok()?;
    (names.rid == rid).then_some(names.id)
}
