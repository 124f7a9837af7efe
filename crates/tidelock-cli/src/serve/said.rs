//! What a client says while its answer runs: lines in the body of its request, which stays open.
//!
//! A release that comes this way needs no other connection, and the stream's own connection can be used again behind it.

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;

use super::{holds::Ending, problem::Problem};

/// A line takes at most this many bytes.
const MAX_LINE: usize = 256 * 1024;

/// The lines of a body, as they come.
#[derive(Debug)]
pub(super) struct Said {
    /// Nothing behind its end.
    body: Option<Incoming>,
    /// What came behind the last line.
    text: Vec<u8>,
}

/// What a client says of its hold.
pub(super) enum Heard {
    Ending(Ending),
    /// It may still rely on the hold.
    Nonsense(Problem),
    /// Its body broke off, and with it the connection.
    Gone,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    end: Ending,
}

impl Said {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body: Some(body), text: Vec::new() }
    }

    /// The next line, or nothing if the body has ended. Cancel safe.
    ///
    /// # Errors
    /// If the client is gone, or its line is too long.
    pub(super) async fn line(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let rest = self.text.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.text, rest).into()));
            }
            if self.text.len() > MAX_LINE {
                return Err(Problem::too_large(format!("a line has more than {MAX_LINE} bytes")));
            }
            let Some(body) = &mut self.body else {
                let last = std::mem::take(&mut self.text);
                return Ok((!last.trim_ascii().is_empty()).then(|| last.into()));
            };
            match body.frame().await {
                Some(Ok(frame)) => self.text.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(error)) => {
                    return Err(Problem::bad_request(format!("the body cannot be read: {error}")));
                }
                None => self.body = None,
            }
        }
    }

    /// What the client says of its hold. Does not return if it has nothing more to say. Cancel safe.
    pub(super) async fn heard(&mut self) -> Heard {
        match self.line().await {
            Ok(Some(line)) => read(&line).map_or_else(Heard::Nonsense, Heard::Ending),
            Ok(None) => std::future::pending().await,
            // It is still there.
            Err(problem) if problem.kind == "too_large" => {
                self.text.clear();
                Heard::Nonsense(problem)
            }
            Err(_) => Heard::Gone,
        }
    }
}

fn read(line: &[u8]) -> Result<Ending, Problem> {
    let Line { end } = serde_json::from_slice(line).map_err(|error| {
        Problem::bad_request(format!("{error}: a line behind the first is such as {{\"end\":\"release\"}}"))
    })?;
    Ok(end)
}
