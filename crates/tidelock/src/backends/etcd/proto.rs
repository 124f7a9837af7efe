//! The few messages of etcd's protocol that locks need, with the fields that are used.
//!
//! Written by hand so that nobody needs `protoc` to build. Fields of a `oneof` are optional fields here: on
//! the wire they are the same.

use prost::Message;

/// A call of etcd.
pub(super) trait Ask: Message + Clone + Default + 'static {
    /// What it is answered with.
    type Answer: Message + Default + 'static;
    /// Where it goes.
    const PATH: &'static str;
}

macro_rules! calls {
    ($($ask:ident -> $answer:ident at $path:literal;)*) => {
        $(impl Ask for $ask {
            type Answer = $answer;
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
        })*
    };
}

calls! {
    RangeRequest -> RangeResponse at "KV/Range";
    PutRequest -> ChangedResponse at "KV/Put";
    DeleteRangeRequest -> ChangedResponse at "KV/DeleteRange";
    TxnRequest -> TxnResponse at "KV/Txn";
    WatchRequest -> WatchResponse at "Watch/Watch";
    LeaseGrantRequest -> LeaseGrantResponse at "Lease/LeaseGrant";
    LeaseRevokeRequest -> LeaseRevokeResponse at "Lease/LeaseRevoke";
    LeaseKeepAliveRequest -> LeaseKeepAliveResponse at "Lease/LeaseKeepAlive";
    LeaseTimeToLiveRequest -> LeaseTimeToLiveResponse at "Lease/LeaseTimeToLive";
    AuthenticateRequest -> AuthenticateResponse at "Auth/Authenticate";
    StatusRequest -> StatusResponse at "Maintenance/Status";
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(super) raft_term: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    /// Only keys that were not created later; all if it is zero.
    #[prost(int64, tag = "13")]
    pub(super) max_create_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
    #[prost(bool, tag = "6")]
    pub(super) ignore_lease: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

/// The answer to a put or a delete, of which nothing is needed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ChangedResponse {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    pub(super) put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub(super) delete: Option<DeleteRangeRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "Relation", tag = "1")]
    pub(super) result: i32,
    #[prost(enumeration = "Target", tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    pub(super) create_revision: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub(super) mod_revision: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(super) value: Option<Vec<u8>>,
    /// Then all keys of a range have to compare so; one without keys counts as revision 0.
    #[prost(bytes = "vec", tag = "64")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Relation {
    Equal = 0,
    Less = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Target {
    Version = 0,
    Create = 1,
    Mod = 2,
    Value = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreateRequest>,
    #[prost(message, optional, tag = "2")]
    pub(super) cancel: Option<WatchCancelRequest>,
    #[prost(message, optional, tag = "3")]
    pub(super) progress: Option<WatchProgressRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    #[prost(enumeration = "Filter", repeated, tag = "5")]
    pub(super) filters: Vec<i32>,
    #[prost(int64, tag = "7")]
    pub(super) watch_id: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Filter {
    NoPut = 0,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCancelRequest {
    #[prost(int64, tag = "1")]
    pub(super) watch_id: i64,
}

/// Asks up to which revision all watches of a stream have told everything.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(super) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub(super) r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum EventType {
    Put = 0,
    Delete = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
    #[prost(string, tag = "4")]
    pub(super) error: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveResponse {
    /// Zero if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
    /// Whether its keys are wanted, too.
    #[prost(bool, tag = "2")]
    pub(super) keys: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseTimeToLiveResponse {
    /// Whole seconds that are left, rounded down; negative if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(super) keys: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    /// Bytes of the database, with what compactions left free.
    #[prost(int64, tag = "3")]
    pub(super) db_size: i64,
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
    #[prost(uint64, tag = "5")]
    pub(super) raft_index: u64,
    #[prost(uint64, tag = "7")]
    pub(super) raft_applied_index: u64,
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
    /// Bytes of the database that are in use.
    #[prost(int64, tag = "9")]
    pub(super) db_size_in_use: i64,
    #[prost(bool, tag = "10")]
    pub(super) is_learner: bool,
    /// How large the database may become; zero if the server does not tell, as before 3.6.
    #[prost(int64, tag = "12")]
    pub(super) db_size_quota: i64,
}

impl TxnRequest {
    /// Deletes a key if it was created at this revision: it may be used for another claim by now.
    pub(super) fn delete_created_at(key: Vec<u8>, revision: i64) -> Self {
        Self {
            compare: vec![Compare::created_at(key.clone(), revision)],
            success: vec![RequestOp::delete(key)],
            failure: Vec::new(),
        }
    }
}

impl RangeRequest {
    /// Reads the keys from `key` up to `range_end`, or the one key if that is empty.
    pub(super) fn of(key: Vec<u8>, range_end: Vec<u8>) -> Self {
        Self { key, range_end, ..Self::default() }
    }

    /// Reads one key.
    pub(super) fn one(key: Vec<u8>) -> Self {
        Self::of(key, Vec::new())
    }

    /// Without values.
    pub(super) fn keys(self) -> Self {
        Self { keys_only: true, ..self }
    }

    /// Only what was created up to this revision.
    pub(super) fn created_until(self, revision: i64) -> Self {
        Self { max_create_revision: revision, ..self }
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(range: RangeRequest) -> Self {
        Self { range: Some(range), ..Self::default() }
    }
}

impl RequestOp {
    /// Reads the keys from `key` up to `range_end`, or the one key if that is empty.
    pub(super) fn range(key: Vec<u8>, range_end: Vec<u8>) -> Self {
        RangeRequest::of(key, range_end).into()
    }

    /// Writes a key that ends with a lease.
    pub(super) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> Self {
        Self { put: Some(PutRequest { key, value, lease, ignore_lease: false }), ..Self::default() }
    }

    /// Writes a key that is there anew, under the lease that it has.
    pub(super) fn rewrite(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { put: Some(PutRequest { key, value, lease: 0, ignore_lease: true }), ..Self::default() }
    }

    pub(super) fn delete(key: Vec<u8>) -> Self {
        Self { delete: Some(DeleteRangeRequest { key }), ..Self::default() }
    }
}

impl Compare {
    /// There is no such key.
    pub(super) fn absent(key: Vec<u8>) -> Self {
        Self::created_at(key, 0)
    }

    /// There is no key from `key` up to `range_end`.
    pub(super) fn none_in(key: Vec<u8>, range_end: Vec<u8>) -> Self {
        Self { range_end, ..Self::created_at(key, 0) }
    }

    /// The key was created at this revision.
    pub(super) fn created_at(key: Vec<u8>, revision: i64) -> Self {
        Self { target: Target::Create.into(), key, create_revision: Some(revision), ..Self::default() }
    }

    /// The key is there and has this value.
    pub(super) fn value_is(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { target: Target::Value.into(), key, value: Some(value), ..Self::default() }
    }

    /// No key from `key` up to `range_end` was written after this revision.
    pub(super) fn unchanged_since(key: Vec<u8>, range_end: Vec<u8>, revision: i64) -> Self {
        Self {
            result: Relation::Less.into(),
            target: Target::Mod.into(),
            key,
            mod_revision: Some(revision + 1),
            range_end,
            ..Self::default()
        }
    }
}

/// Whatever an answer begins with.
pub(super) fn revision(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}
