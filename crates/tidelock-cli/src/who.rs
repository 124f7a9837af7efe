//! Who takes a lock away: part of the reason, so that its holder and all who watch are told.

use std::fs;

use tidelock::MAX_OWNER_BYTES;

/// A reason with the one who gives it. Left as it is if both together are longer than a reason may be.
pub(crate) fn signed(reason: &str, by: &str) -> String {
    let by = by.trim();
    let signed = if reason.is_empty() { format!("by {by}") } else { format!("{reason}; by {by}") };
    let fits = !by.is_empty() && signed.len() <= MAX_OWNER_BYTES && !by.contains(char::is_control);
    if fits { signed } else { reason.to_owned() }
}

/// The user of this process, and the machine.
pub(crate) fn user() -> String {
    let named = ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    match fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(machine) => format!("{user}@{}", machine.trim()),
        Err(_) => user,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_who_gave_it_if_there_is_room() {
        assert_eq!(signed("it hangs", "ann@build-3\n"), "it hangs; by ann@build-3");
        assert_eq!(signed("", "ann"), "by ann");
        assert_eq!(signed("it hangs", "a\u{7}b"), "it hangs");
        let long = "x".repeat(MAX_OWNER_BYTES);
        assert_eq!(signed(&long, "ann"), long);
        assert!(!user().is_empty());
    }
}
