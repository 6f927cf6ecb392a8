//! What can go wrong with a request, and the one table that maps it to status and sub-status.

use std::fmt;

/// The kind decides who must act: the caller, a retry, the operator, or us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong in itself.
    BadRequest,
    /// The partition key of the request contradicts the item's.
    PartitionKeyMismatch,
    /// The gateway cannot serve this cross-partition query; the client must plan it.
    CrossPartitionQuery,
    /// The client believes in another incarnation of the container.
    ContainerRidMismatch,
    /// Missing, malformed or wrong signature.
    Unauthorized,
    /// Signed, but not allowed, or signed at another time.
    Forbidden,
    /// The addressed resource does not exist.
    NotFound,
    /// The owner (database, container) of the addressed resource does not exist.
    OwnerNotFound,
    /// The session token is ahead of this replica.
    SessionNotAvailable,
    /// The path does not take this verb.
    MethodNotAllowed,
    /// The client did not send its request in time.
    RequestTimeout,
    /// The id or a unique key is taken.
    Conflict,
    /// The partition key range no longer exists.
    RangeGone,
    /// An etag or a patch condition did not hold.
    PreconditionFailed,
    /// The item changes too fast for the request; the same request may succeed at once.
    RetryWith,
    /// The request or the item is larger than the limit.
    TooLarge,
    /// The container's throughput or the node's admission bound is exceeded.
    TooManyRequests,
    /// The system resources of the node are exhausted; retry later.
    Overloaded,
    /// A bug of ours.
    Internal,
    /// Not offered.
    NotImplemented,
    /// The shard cannot serve: damaged, poisoned, or restarting.
    Unavailable,
    /// The disk is full.
    InsufficientStorage,
    /// This node does not lead the shard or the catalog; the leader, if it is known. The gateway
    /// forwards the request.
    NotLeader(Option<u64>),
}

impl ErrorKind {
    /// Status, sub-status and code, as the protocol has them.
    pub const fn wire(self) -> (u16, u32, &'static str) {
        match self {
            Self::BadRequest => (400, 0, "BadRequest"),
            Self::PartitionKeyMismatch => (400, 1001, "BadRequest"),
            Self::CrossPartitionQuery => (400, 1004, "BadRequest"),
            Self::ContainerRidMismatch => (400, 1024, "BadRequest"),
            Self::Unauthorized => (401, 0, "Unauthorized"),
            Self::Forbidden => (403, 0, "Forbidden"),
            Self::NotFound => (404, 0, "NotFound"),
            Self::OwnerNotFound => (404, 1003, "NotFound"),
            Self::SessionNotAvailable => (404, 1002, "NotFound"),
            Self::MethodNotAllowed => (405, 0, "MethodNotAllowed"),
            Self::RequestTimeout => (408, 0, "RequestTimeout"),
            Self::Conflict => (409, 0, "Conflict"),
            Self::RangeGone => (410, 1002, "Gone"),
            Self::PreconditionFailed => (412, 0, "PreconditionFailed"),
            Self::TooLarge => (413, 0, "RequestEntityTooLarge"),
            Self::RetryWith => (449, 0, "RetryWith"),
            Self::TooManyRequests => (429, 3200, "TooManyRequests"),
            Self::Overloaded => (429, 3092, "TooManyRequests"),
            Self::Internal => (500, 0, "InternalServerError"),
            Self::NotImplemented => (501, 0, "NotImplemented"),
            Self::Unavailable | Self::NotLeader(_) => (503, 0, "ServiceUnavailable"),
            Self::InsufficientStorage => (507, 0, "InsufficientStorage"),
        }
    }
}

/// An error with a message for the person who reads it: lower case, naming the offending value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
    /// For 429: how long the client should wait.
    pub retry_after_ms: Option<u32>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after_ms: None,
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadRequest, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    pub fn precondition_failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::PreconditionFailed, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// Redirects to the leader, if it is known.
    pub fn not_leader(leader: Option<u64>) -> Self {
        let message = match leader {
            Some(leader) => format!("this node is not the leader; the leader is node {leader}"),
            None => "there is no leader at the moment; try again".to_owned(),
        };
        Self::new(ErrorKind::NotLeader(leader), message)
    }

    pub fn status(&self) -> u16 {
        self.kind.wire().0
    }

    pub fn substatus(&self) -> u32 {
        self.kind.wire().1
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
