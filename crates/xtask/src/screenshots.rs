//! `cargo xtask screenshots`: pictures of the page, from a real browser.

use std::path::Path;

use crate::run;

/// Writes the pictures of the documentation into docs/images.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    let args = ["test", "-p", "tidelock-cli", "--test", "page", "--", "--ignored", "--exact", "screenshots"];
    run::run(&mut run::cargo(root, &args))?;
    Ok(true)
}
