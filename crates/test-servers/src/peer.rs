//! Whose connections are.

use std::{fs, net::TcpStream};

/// Whether the other end of a connection on this machine belongs to a process.
pub(crate) fn is_of(stream: &TcpStream, process: u32) -> bool {
    let Ok(peer) = stream.peer_addr() else { return false };
    let Ok(table) = fs::read_to_string("/proc/net/tcp") else { return false };
    let port = format!(":{:04X}", peer.port());
    let sockets: Vec<_> = table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let local = fields.nth(1)?;
            let inode = fields.nth(7)?;
            local.ends_with(&port).then(|| format!("socket:[{inode}]"))
        })
        .collect();
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| {
        fs::read_link(file.path())
            .is_ok_and(|target| sockets.iter().any(|socket| target.as_os_str() == &**socket))
    })
}
