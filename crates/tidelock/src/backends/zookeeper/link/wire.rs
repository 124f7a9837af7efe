//! ZooKeeper's protocol: requests as bytes, answers from bytes.
//!
//! Only what locks need. Numbers are big-endian, a text or a list begins with its length, and every
//! message is one frame with its length in front.

use super::super::errors::ZkError;

/// A request of ordinary kind gets its own number; these have fixed ones.
pub(crate) const XID_EVENT: i32 = -1;
pub(crate) const XID_PING: i32 = -2;
pub(crate) const XID_AUTH: i32 = -4;

/// An answer larger than this is none: the server's own limit is 1 MB, and lists are a little longer.
pub(crate) const MAX_FRAME: usize = 64 << 20;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const SYNC: i32 = 9;
const PING: i32 = 11;
const GET_CHILDREN: i32 = 8;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const CREATE2: i32 = 15;
const REMOVE_WATCHES: i32 = 18;
const CREATE_CONTAINER: i32 = 19;
const AUTH: i32 = 100;
const ADD_WATCH: i32 = 106;
const SASL: i32 = 102;
const CLOSE: i32 = -11;

/// What the server does with a node that a client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Persistent = 0,
    Ephemeral = 1,
    EphemeralSequential = 3,
}

/// Container: the server removes it some time after its last child.
const CONTAINER: i32 = 4;

/// Who may do what with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) permissions: i32,
    pub(crate) scheme: String,
    pub(crate) id: String,
}

/// What the server knows of a node besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that made it.
    pub(crate) czxid: i64,
    /// The transaction that last wrote it.
    pub(crate) mzxid: i64,
    /// When it was made and last written, in milliseconds of the leader's wall clock.
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// The session it ends with; 0 if it ends with none.
    pub(crate) ephemeral_owner: i64,
    pub(crate) children: i32,
}

/// Something that happened to a node somebody watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Deleted,
    /// Written, made, or another child.
    Other,
}

/// A question, ready to be sent but for its number.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) op: i32,
    pub(crate) body: Vec<u8>,
}

impl Request {
    fn new(op: i32) -> Self {
        Self { op, body: Vec::with_capacity(128) }
    }

    pub(crate) fn create(path: &str, data: &[u8], acl: &[Acl], mode: Mode) -> Self {
        let mut request = Self::new(CREATE2);
        put_create(&mut request.body, path, data, acl, mode as i32);
        request
    }

    pub(crate) fn create_container(path: &str, acl: &[Acl]) -> Self {
        let mut request = Self::new(CREATE_CONTAINER);
        put_create(&mut request.body, path, b"", acl, CONTAINER);
        request
    }

    /// Any version is -1.
    pub(crate) fn delete(path: &str, version: i32) -> Self {
        let mut request = Self::new(DELETE);
        put_text(&mut request.body, path);
        put_int(&mut request.body, version);
        request
    }

    pub(crate) fn exists(path: &str, watch: bool) -> Self {
        Self::new(EXISTS).path_and_watch(path, watch)
    }

    pub(crate) fn get_data(path: &str, watch: bool) -> Self {
        Self::new(GET_DATA).path_and_watch(path, watch)
    }

    pub(crate) fn children(path: &str, watch: bool) -> Self {
        Self::new(GET_CHILDREN).path_and_watch(path, watch)
    }

    pub(crate) fn set_data(path: &str, data: &[u8], version: i32) -> Self {
        let mut request = Self::new(SET_DATA);
        put_text(&mut request.body, path);
        put_bytes(&mut request.body, data);
        put_int(&mut request.body, version);
        request
    }

    /// The server that is asked catches up with its leader before it answers.
    pub(crate) fn sync(path: &str) -> Self {
        let mut request = Self::new(SYNC);
        put_text(&mut request.body, path);
        request
    }

    /// What was watched by reading its data is not watched any more.
    pub(crate) fn unwatch(path: &str) -> Self {
        const DATA: i32 = 2;
        let mut request = Self::new(REMOVE_WATCHES);
        put_text(&mut request.body, path);
        put_int(&mut request.body, DATA);
        request
    }

    /// Nothing at this path is watched any more.
    pub(crate) fn unwatch_all(path: &str) -> Self {
        const ANY: i32 = 3;
        let mut request = Self::new(REMOVE_WATCHES);
        put_text(&mut request.body, path);
        put_int(&mut request.body, ANY);
        request
    }

    /// Every change at this path and below it is told from now on, on this connection. Servers know it from 3.6 on.
    pub(crate) fn watch_below(path: &str) -> Self {
        const PERSISTENT_RECURSIVE: i32 = 1;
        let mut request = Self::new(ADD_WATCH);
        put_text(&mut request.body, path);
        put_int(&mut request.body, PERSISTENT_RECURSIVE);
        request
    }

    pub(crate) fn multi(steps: &[Step<'_>]) -> Self {
        let mut request = Self::new(MULTI);
        let body = &mut request.body;
        for step in steps {
            put_multi_header(body, step.op(), false);
            match step {
                Step::Check(path) => {
                    put_text(body, path);
                    put_int(body, -1);
                }
                Step::Delete(path) => {
                    put_text(body, path);
                    put_int(body, -1);
                }
                Step::Create(path, data, acl, mode) => put_create(body, path, data, acl, *mode as i32),
                Step::SetData(path, data, version) => {
                    put_text(body, path);
                    put_bytes(body, data);
                    put_int(body, *version);
                }
            }
        }
        put_multi_header(body, -1, true);
        request
    }

    pub(crate) fn ping() -> Self {
        Self { op: PING, body: Vec::new() }
    }

    pub(crate) fn close() -> Self {
        Self { op: CLOSE, body: Vec::new() }
    }

    pub(crate) fn auth(scheme: &str, secret: &[u8]) -> Self {
        let mut request = Self::new(AUTH);
        put_int(&mut request.body, 0);
        put_text(&mut request.body, scheme);
        put_bytes(&mut request.body, secret);
        request
    }

    pub(crate) fn sasl(token: &[u8]) -> Self {
        let mut request = Self::new(SASL);
        put_bytes(&mut request.body, token);
        request
    }

    fn path_and_watch(mut self, path: &str, watch: bool) -> Self {
        put_text(&mut self.body, path);
        self.body.push(u8::from(watch));
        self
    }

    /// Appends the frame to what will be sent.
    pub(crate) fn put(&self, xid: i32, out: &mut Vec<u8>) {
        put_int(out, i32::try_from(self.body.len() + 8).unwrap_or(i32::MAX));
        put_int(out, xid);
        put_int(out, self.op);
        out.extend_from_slice(&self.body);
    }
}

/// One part of several that happen together or not at all.
pub(crate) enum Step<'a> {
    /// The node is there.
    Check(&'a str),
    Delete(&'a str),
    Create(&'a str, &'a [u8], &'a [Acl], Mode),
    SetData(&'a str, &'a [u8], i32),
}

impl Step<'_> {
    fn op(&self) -> i32 {
        match self {
            Self::Check(_) => CHECK,
            Self::Delete(_) => DELETE,
            Self::Create(..) => CREATE,
            Self::SetData(..) => SET_DATA,
        }
    }
}

/// The greeting that begins or takes up a session.
pub(crate) fn connect(last_zxid: i64, timeout_ms: i32, session: i64, password: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(64);
    put_int(&mut body, 0);
    put_long(&mut body, last_zxid);
    put_int(&mut body, timeout_ms);
    put_long(&mut body, session);
    put_bytes(&mut body, password);
    // A server that lost its majority may answer reads, and grants no locks.
    body.push(0);
    let mut frame = Vec::with_capacity(body.len() + 4);
    put_int(&mut frame, i32::try_from(body.len()).unwrap_or(i32::MAX));
    frame.extend_from_slice(&body);
    frame
}

/// The answer to the greeting: timeout, session and password.
pub(crate) fn connected(frame: &[u8]) -> Result<(i32, i64, Vec<u8>), ZkError> {
    let mut read = Reader(frame);
    read.int()?;
    Ok((read.int()?, read.long()?, read.bytes()?.to_vec()))
}

fn put_create(out: &mut Vec<u8>, path: &str, data: &[u8], acl: &[Acl], flags: i32) {
    put_text(out, path);
    put_bytes(out, data);
    put_int(out, i32::try_from(acl.len()).unwrap_or(i32::MAX));
    for entry in acl {
        put_int(out, entry.permissions);
        put_text(out, &entry.scheme);
        put_text(out, &entry.id);
    }
    put_int(out, flags);
}

fn put_multi_header(out: &mut Vec<u8>, op: i32, done: bool) {
    put_int(out, op);
    out.push(u8::from(done));
    put_int(out, -1);
}

fn put_int(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_long(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_int(out, i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Reads an answer from its front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], ZkError> {
        let (head, tail) = self.0.split_at_checked(length).ok_or_else(ZkError::garbled)?;
        self.0 = tail;
        Ok(head)
    }

    pub(crate) fn int(&mut self) -> Result<i32, ZkError> {
        let bytes = self.take(4)?.try_into().map_err(|_| ZkError::garbled())?;
        Ok(i32::from_be_bytes(bytes))
    }

    pub(crate) fn long(&mut self) -> Result<i64, ZkError> {
        let bytes = self.take(8)?.try_into().map_err(|_| ZkError::garbled())?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// A length of -1 is nothing at all, which is taken for empty.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ZkError> {
        let length = self.int()?.max(0);
        self.take(usize::try_from(length).map_err(|_| ZkError::garbled())?)
    }

    pub(crate) fn text(&mut self) -> Result<String, ZkError> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| ZkError::garbled())
    }

    fn texts(&mut self) -> Result<Vec<String>, ZkError> {
        let count = self.int()?.max(0);
        (0..count).map(|_| self.text()).collect()
    }

    fn stat(&mut self) -> Result<Stat, ZkError> {
        let (czxid, mzxid) = (self.long()?, self.long()?);
        let (ctime, mtime) = (self.long()?, self.long()?);
        let version = self.int()?;
        let (_cversion, _aversion) = (self.int()?, self.int()?);
        let ephemeral_owner = self.long()?;
        let (_length, children) = (self.int()?, self.int()?);
        let _pzxid = self.long()?;
        Ok(Stat { czxid, mzxid, ctime, mtime, version, ephemeral_owner, children })
    }
}

/// The path and state of a node that was made.
pub(crate) fn created(body: &[u8]) -> Result<(String, Stat), ZkError> {
    let mut read = Reader(body);
    Ok((read.text()?, read.stat()?))
}

pub(crate) fn stat(body: &[u8]) -> Result<Stat, ZkError> {
    Reader(body).stat()
}

pub(crate) fn data(body: &[u8]) -> Result<(Vec<u8>, Stat), ZkError> {
    let mut read = Reader(body);
    Ok((read.bytes()?.to_vec(), read.stat()?))
}

pub(crate) fn children(body: &[u8]) -> Result<Vec<String>, ZkError> {
    Reader(body).texts()
}

/// The answers to the steps of a multi: the path of each node that was made, or why nothing happened.
pub(crate) fn multi(body: &[u8]) -> Result<Vec<Option<String>>, ZkError> {
    let mut read = Reader(body);
    let (mut made, mut failed) = (Vec::new(), None);
    loop {
        let op = read.int()?;
        let done = read.take(1)?[0] != 0;
        let code = read.int()?;
        if done {
            return failed.map_or(Ok(made), |code| Err(ZkError::Code(code)));
        }
        match op {
            CREATE => made.push(Some(read.text()?)),
            SET_DATA => {
                read.stat()?;
                made.push(None);
            }
            -1 => {
                // The step that failed says why; those around it only that they were undone.
                let step = read.int()?;
                let told = if step != 0 { step } else { code };
                if told != 0 && told != UNDONE {
                    failed.get_or_insert(told);
                }
            }
            _ => made.push(None),
        }
    }
}

/// A step that was undone because another failed.
const UNDONE: i32 = -2;

/// What happened to which path.
pub(crate) fn event(body: &[u8]) -> Result<(Change, String), ZkError> {
    let mut read = Reader(body);
    let (kind, _state) = (read.int()?, read.int()?);
    Ok((if kind == 2 { Change::Deleted } else { Change::Other }, read.text()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_off_is_an_error_and_no_panic() {
        let mut whole = Vec::new();
        put_text(&mut whole, "/a");
        whole.extend_from_slice(&[0; 68]);
        assert_eq!(created(&whole).unwrap().0, "/a");
        for cut in 0..whole.len() {
            assert!(created(&whole[..cut]).is_err(), "{cut}");
        }
        assert!(multi(&[0, 0, 0, 1]).is_err() && event(&[]).is_err() && connected(&[0; 9]).is_err());
    }

    #[test]
    fn of_several_steps_the_one_that_failed_is_told() {
        let mut body = Vec::new();
        for code in [0, NO_NODE_FOR_TEST, UNDONE] {
            put_int(&mut body, -1);
            body.push(0);
            put_int(&mut body, code);
            put_int(&mut body, code);
        }
        put_multi_header(&mut body, -1, true);
        assert_eq!(multi(&body).unwrap_err(), ZkError::Code(NO_NODE_FOR_TEST));
    }

    const NO_NODE_FOR_TEST: i32 = super::super::super::errors::NO_NODE;
}
