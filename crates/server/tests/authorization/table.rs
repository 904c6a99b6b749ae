//! Tables of operations, disguises, and what each principal may do, from which expected results follow.

/// The access that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
    /// Reads or changes permissions, which hold tokens.
    Permissions,
    /// Splits or merges partitions.
    Topology,
    /// Copies the whole account.
    Backup,
}

/// The scope of a resource token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Database,
    Container,
    Key,
    Item,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    Nobody,
    Primary,
    Secondary,
    ReadOnly,
    SecondaryReadOnly,
    Token(Scope, Mode),
}

impl Principal {
    pub(crate) fn only_reads(self) -> bool {
        match self {
            Principal::Primary | Principal::Secondary => false,
            Principal::Nobody | Principal::ReadOnly | Principal::SecondaryReadOnly => true,
            Principal::Token(_, mode) => mode == Mode::Read,
        }
    }
}

/// The resource of a path, as resource tokens distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The account document.
    Account,
    /// Covered by no token.
    Beyond,
    Database,
    /// A container, its scripts, or lists of them.
    Container,
    /// Readable with a token for anything in the container, because clients need it to find items.
    Map,
    /// The items of the container.
    Items,
    /// The item that a token is for.
    Item,
}

/// The operations that headers can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    /// None: headers do not matter.
    Never,
    /// A create or a query of a list.
    Query,
    /// `POST …/docs`: a plan, a batch, a query, or a write.
    Items,
}

pub(crate) struct Op {
    pub(crate) name: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) path: &'static str,
    pub(crate) body: &'static str,
    class: Class,
    place: Place,
    turns: Turns,
    /// Whether it works on the items of a partition key.
    is_of_items: bool,
    /// Whether it removes what later operations need.
    pub(crate) is_last: bool,
    /// Whether headers select among several operations.
    pub(crate) is_ambiguous: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Disguise {
    pub(crate) name: String,
    pub(crate) head: Vec<(&'static str, &'static str)>,
    is_query: bool,
    is_plan: bool,
    is_batch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Unauthorized,
    Forbidden,
    /// Any other status: the request itself may still be invalid.
    Permitted,
}

impl Expected {
    pub(crate) fn is(self, status: u16) -> bool {
        match self {
            Expected::Unauthorized => status == 401,
            Expected::Forbidden => status == 403,
            Expected::Permitted => !matches!(status, 401 | 403 | 500..),
        }
    }
}

/// The access that a request requires, by its path and its effective headers.
fn class(op: &Op, disguise: &Disguise) -> Class {
    match op.turns {
        Turns::Items if disguise.is_plan => Class::Read,
        Turns::Items if disguise.is_batch => Class::Write,
        Turns::Items | Turns::Query if disguise.is_query && op.class == Class::Write => Class::Read,
        _ => op.class,
    }
}

pub(crate) fn expected(principal: Principal, op: &Op, disguise: &Disguise) -> Expected {
    let class = class(op, disguise);
    let permitted = match principal {
        Principal::Nobody => return Expected::Unauthorized,
        Principal::Primary | Principal::Secondary => true,
        Principal::ReadOnly | Principal::SecondaryReadOnly => class == Class::Read,
        Principal::Token(scope, mode) => token_permits(scope, mode, op, class),
    };
    if permitted { Expected::Permitted } else { Expected::Forbidden }
}

fn token_permits(scope: Scope, mode: Mode, op: &Op, class: Class) -> bool {
    let is_covered = match (scope, op.place) {
        (_, Place::Account) => return true,
        (_, Place::Beyond) => false,
        (Scope::Database, _) => true,
        (_, Place::Database) => false,
        (Scope::Container | Scope::Key, _) => true,
        (Scope::Item, Place::Item) => true,
        (Scope::Item, Place::Map) => class == Class::Read,
        (Scope::Item, Place::Container | Place::Items) => false,
    };
    let in_mode = match class {
        Class::Read => true,
        Class::Write => mode == Mode::All && (scope != Scope::Key || op.is_of_items),
        Class::Permissions | Class::Topology | Class::Backup => false,
    };
    is_covered && in_mode
}

const NEW: &str = r#"{"id":"new","pk":"a"}"#;
const QUERY: &str = r#"{"query":"SELECT * FROM c"}"#;
const BATCH: &str = r#"[{"operationType":"Upsert","partitionKey":"[\"a\"]","resourceBody":{"id":"batched","pk":"a"}}]"#;
const CONTAINER: &str =
    r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#;
const SCRIPT: &str = r#"{"id":"made","body":"function () {}"}"#;
const TRIGGER: &str =
    r#"{"id":"made","body":"function () {}","triggerType":"Pre","triggerOperation":"All"}"#;
const PERMISSION: &str =
    r#"{"id":"made","permissionMode":"All","resource":"dbs/db/colls/c/docs/made"}"#;
const ENCRYPTION_KEY: &str = r#"{"id":"made","encryptionAlgorithm":"a","wrappedDataEncryptionKey":"b","keyWrapMetadata":{}}"#;

/// Every operation. Those that remove what others need come last.
pub(crate) fn operations() -> Vec<Op> {
    use Class::{Backup, Permissions, Read, Topology, Write};
    use Place::{Account, Beyond, Container, Database, Item, Items, Map};
    let mut all = Vec::new();
    let mut add = |name, verb, path, body, class, place| {
        let turns = match (verb, name) {
            ("POST", name) if str::starts_with(name, "items:") => Turns::Items,
            ("POST", name) if str::starts_with(name, "list:") => Turns::Query,
            _ => Turns::Never,
        };
        let is_item = matches!(place, Items | Item);
        let runs = str::starts_with(path, "/dbs/db/colls/c/sprocs/w") && verb == "POST";
        let is_of_items = (is_item || runs) && !str::starts_with(path, "/_headwater");
        let is_last = verb == "DELETE" || str::ends_with(path, "partitionkeydelete");
        let is_ambiguous = turns == Turns::Items || runs;
        all.push(Op {
            name,
            verb,
            path,
            body,
            class,
            place,
            turns,
            is_of_items,
            is_last,
            is_ambiguous,
        });
    };
    add("read account", "GET", "/", "", Read, Account);
    add("list databases", "GET", "/dbs", "", Read, Beyond);
    add("list: create database", "POST", "/dbs", r#"{"id":"made"}"#, Write, Beyond);
    add("list: query databases", "POST", "/dbs", QUERY, Write, Beyond);
    add("read database", "GET", "/dbs/db", "", Read, Database);
    add("list containers", "GET", "/dbs/db/colls", "", Read, Database);
    let made = r#"{"id":"made","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#;
    add("list: create container", "POST", "/dbs/db/colls", made, Write, Database);
    add("list: query containers", "POST", "/dbs/db/colls", QUERY, Write, Database);
    add("read container", "GET", "/dbs/db/colls/c", "", Read, Map);
    add("replace container", "PUT", "/dbs/db/colls/c", CONTAINER, Write, Container);
    add("list items", "GET", "/dbs/db/colls/c/docs", "", Read, Items);
    add("items: create", "POST", "/dbs/db/colls/c/docs", NEW, Write, Items);
    add("items: batch", "POST", "/dbs/db/colls/c/docs", BATCH, Write, Items);
    add("items: query", "POST", "/dbs/db/colls/c/docs", QUERY, Write, Items);
    add("read item", "GET", "/dbs/db/colls/c/docs/1", "", Read, Item);
    let one = r#"{"id":"1","pk":"a","n":1}"#;
    add("replace item", "PUT", "/dbs/db/colls/c/docs/1", one, Write, Item);
    let patch = r#"{"operations":[{"op":"set","path":"/n","value":2}]}"#;
    add("patch item", "PATCH", "/dbs/db/colls/c/docs/1", patch, Write, Item);
    let two = r#"{"id":"2","pk":"a"}"#;
    add("read other item", "GET", "/dbs/db/colls/c/docs/2", "", Read, Items);
    add("replace other item", "PUT", "/dbs/db/colls/c/docs/2", two, Write, Items);
    add("list ranges", "GET", "/dbs/db/colls/c/pkranges", "", Read, Map);
    add("read range", "GET", "/dbs/db/colls/c/pkranges/0", "", Read, Beyond);
    add("list conflicts", "GET", "/dbs/db/colls/c/conflicts", "", Read, Container);
    add("list schemas", "GET", "/dbs/db/colls/c/schemas", "", Read, Beyond);
    add("list procedures", "GET", "/dbs/db/colls/c/sprocs", "", Read, Container);
    add("list: create procedure", "POST", "/dbs/db/colls/c/sprocs", SCRIPT, Write, Container);
    add("list: query procedures", "POST", "/dbs/db/colls/c/sprocs", QUERY, Write, Container);
    add("read procedure", "GET", "/dbs/db/colls/c/sprocs/w", "", Read, Container);
    add("execute procedure", "POST", "/dbs/db/colls/c/sprocs/w", "[]", Write, Container);
    add("replace procedure", "PUT", "/dbs/db/colls/c/sprocs/r", SCRIPT, Write, Container);
    add("list triggers", "GET", "/dbs/db/colls/c/triggers", "", Read, Container);
    add("list: create trigger", "POST", "/dbs/db/colls/c/triggers", TRIGGER, Write, Container);
    add("read trigger", "GET", "/dbs/db/colls/c/triggers/t", "", Read, Container);
    add("replace trigger", "PUT", "/dbs/db/colls/c/triggers/t", TRIGGER, Write, Container);
    add("list functions", "GET", "/dbs/db/colls/c/udfs", "", Read, Container);
    add("list: create function", "POST", "/dbs/db/colls/c/udfs", SCRIPT, Write, Container);
    add("read function", "GET", "/dbs/db/colls/c/udfs/f", "", Read, Container);
    add("replace function", "PUT", "/dbs/db/colls/c/udfs/f", SCRIPT, Write, Container);
    add("list users", "GET", "/dbs/db/users", "", Read, Beyond);
    add("list: create user", "POST", "/dbs/db/users", r#"{"id":"made"}"#, Write, Beyond);
    add("list: query users", "POST", "/dbs/db/users", QUERY, Write, Beyond);
    add("read user", "GET", "/dbs/db/users/zoe", "", Read, Beyond);
    add("replace user", "PUT", "/dbs/db/users/zoe", r#"{"id":"zoe"}"#, Write, Beyond);
    let permissions = "/dbs/db/users/zoe/permissions";
    add("list permissions", "GET", permissions, "", Permissions, Beyond);
    add("list: create permission", "POST", permissions, PERMISSION, Permissions, Beyond);
    add("list: query permissions", "POST", permissions, QUERY, Permissions, Beyond);
    let permission = "/dbs/db/users/zoe/permissions/p";
    add("read permission", "GET", permission, "", Permissions, Beyond);
    add("replace permission", "PUT", permission, PERMISSION, Permissions, Beyond);
    let keys = "/dbs/db/clientencryptionkeys";
    add("list encryption keys", "GET", keys, "", Read, Beyond);
    add("list: create encryption key", "POST", keys, ENCRYPTION_KEY, Write, Beyond);
    let key = "/dbs/db/clientencryptionkeys/k";
    add("read encryption key", "GET", key, "", Read, Beyond);
    add("replace encryption key", "PUT", key, ENCRYPTION_KEY, Write, Beyond);
    add("list offers", "GET", "/offers", "", Read, Beyond);
    add("list: query offers", "POST", "/offers", QUERY, Write, Beyond);
    add("read offer", "GET", "/offers/{offer}", "", Read, Beyond);
    let offer = r#"{"content":{"offerThroughput":500}}"#;
    add("replace offer", "PUT", "/offers/{offer}", offer, Write, Beyond);
    add("listen", "GET", "/_headwater/changes/db/c", "", Read, Items);
    add("show partitions", "GET", "/_headwater/partitions/db/c", "", Read, Map);
    let (split, merge) = (r#"{"range":"none"}"#, r#"{"ranges":["none","none"]}"#);
    add("split", "POST", "/_headwater/partitions/db/c/split", split, Topology, Map);
    add("merge", "POST", "/_headwater/partitions/db/c/merge", merge, Topology, Map);
    let backup = "/_headwater/backups/none";
    add("begin backup", "POST", "/_headwater/backups", "", Backup, Beyond);
    add("read backup file", "GET", "/_headwater/backups/none/files/0", "", Backup, Beyond);
    let partition = "/_headwater/backups/none/partitions/0";
    add("read backup partition", "GET", partition, "", Backup, Beyond);
    add("end backup", "DELETE", backup, "", Backup, Beyond);
    add("delete item", "DELETE", "/dbs/db/colls/c/docs/1", "", Write, Item);
    let of_key = "/dbs/db/colls/c/operations/partitionkeydelete";
    add("delete partition key", "POST", of_key, "", Write, Items);
    add("delete procedure", "DELETE", "/dbs/db/colls/c/sprocs/r", "", Write, Container);
    add("delete trigger", "DELETE", "/dbs/db/colls/c/triggers/t", "", Write, Container);
    add("delete function", "DELETE", "/dbs/db/colls/c/udfs/f", "", Write, Container);
    add("delete encryption key", "DELETE", key, "", Write, Beyond);
    add("delete permission", "DELETE", permission, "", Permissions, Beyond);
    add("delete user", "DELETE", "/dbs/db/users/zoe", "", Write, Beyond);
    add("delete container", "DELETE", "/dbs/db/colls/c", "", Write, Container);
    add("delete database", "DELETE", "/dbs/db", "", Write, Database);
    all
}

/// A header that could make a request look like another operation.
struct Mask {
    header: (&'static str, &'static str),
    is_query: bool,
    is_plan: bool,
    is_batch: bool,
}

fn mask(name: &'static str, value: &'static str) -> Mask {
    Mask { header: (name, value), is_query: false, is_plan: false, is_batch: false }
}

fn masks() -> Vec<Mask> {
    let query = |name, value| Mask { is_query: true, ..mask(name, value) };
    vec![
        query("x-ms-documentdb-isquery", "True"),
        query("content-type", "application/query+json"),
        Mask { is_batch: true, ..mask("x-ms-cosmos-is-batch-request", "True") },
        Mask { is_plan: true, ..mask("x-ms-cosmos-is-query-plan-request", "True") },
        mask("x-ms-cosmos-batch-atomic", "False"),
        mask("A-IM", "Incremental Feed"),
        mask("Prefer", "wait=1"),
        mask("x-ms-documentdb-is-upsert", "True"),
        mask("x-http-method-override", "GET"),
    ]
}

/// Other spellings of these headers, each used alone.
fn spellings() -> Vec<Mask> {
    let query = |name, value| Mask { is_query: true, ..mask(name, value) };
    vec![
        query("x-ms-documentdb-isquery", "true"),
        query("X-MS-DOCUMENTDB-ISQUERY", "TRUE"),
        query("content-type", "Application/Query+JSON; charset=utf-8"),
        Mask { is_batch: true, ..mask("X-Ms-Cosmos-Is-Batch-Request", "true") },
        Mask { is_plan: true, ..mask("x-ms-cosmos-is-query-plan-request", "TRUE") },
        mask("x-ms-documentdb-isquery", "False"),
        mask("x-ms-cosmos-is-batch-request", "0"),
        mask("content-type", "application/sql"),
        mask("A-IM", ""),
        mask("x-http-method", "GET"),
        mask("x-method-override", "GET"),
        mask("x-ms-documentdb-is-upsert", "false"),
    ]
}

/// No disguise, each spelling, and every combination of at most `most` headers.
pub(crate) fn disguises(most: usize) -> Vec<Disguise> {
    let masks = masks();
    let mut chosen: Vec<Vec<&Mask>> = (0..1_usize << masks.len())
        .filter(|set| set.count_ones() as usize <= most)
        .map(|set| masks.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1))
        .map(|set| set.map(|(_, mask)| mask).collect())
        .collect();
    let spellings = spellings();
    chosen.extend(spellings.iter().map(|mask| vec![mask]));
    chosen.into_iter().map(|masks| disguise(&masks)).collect()
}

fn disguise(masks: &[&Mask]) -> Disguise {
    let head: Vec<_> = masks.iter().map(|mask| mask.header).collect();
    let names: Vec<_> = head.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    Disguise {
        name: format!("[{}]", names.join(", ")),
        head,
        is_query: masks.iter().any(|mask| mask.is_query),
        is_plan: masks.iter().any(|mask| mask.is_plan),
        is_batch: masks.iter().any(|mask| mask.is_batch),
    }
}
