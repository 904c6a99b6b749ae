//! Pre-built names of headers that nearly every request or response has: building one validates each byte.
//! Rarer headers use the strings in `headwater_protocol::headers`.

use headwater_protocol::headers;
use hyper::header::HeaderName;

macro_rules! names {
    ($($name:ident)*) => {
        $(pub(crate) static $name: HeaderName = HeaderName::from_static(headers::$name);)*
    };
}

names! {
    ACTIVITY_ID
    A_IM
    ALT_CONTENT_PATH
    CONSISTENCY_LEVEL
    CONTENT_PATH
    FEED_CHANGED
    FEED_OPS
    FEED_SELECT
    FEED_WHERE
    INTENDED_COLLECTION_RID
    ITEM_COUNT
    ITEM_LSN
    LSN
    PARTITION_KEY
    PARTITION_KEY_RANGE_ID
    PREFER
    QUERY_EXECUTION_INFO
    REQUEST_CHARGE
    REQUEST_DURATION_MS
    SCHEMA_VERSION
    SERVICE_VERSION
    SESSION_TOKEN
    SUPPORTED_SERIALIZATION_FORMATS
    VERSION
    X_MS_DATE
}
