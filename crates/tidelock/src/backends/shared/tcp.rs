//! Connections that are our own: bytes to and from a server, encrypted or not.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::backend::Failure;

/// Bytes to and from a server, by whatever way.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// Connects to a server.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect((host, port)).await.map_err(refused)?;
    stream.set_nodelay(true).map_err(refused)?;
    Ok(stream)
}

/// Nobody is there, or nobody who answers.
pub(crate) fn refused(error: io::Error) -> Failure {
    Failure::unreachable(format!("{error}: start the server, or correct the host and port in the URL"))
        .caused_by(error)
}
