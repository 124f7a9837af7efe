//! `tidelock man`: the manual.

use std::{io, path::Path};

use clap::CommandFactory;

use crate::{
    args::{Args, Man},
    exit::Exit,
    output::{self, Trouble},
};

/// Prints the page of the whole, or writes a page for each verb.
pub(crate) fn run(args: &Man) -> Result<Exit, Trouble> {
    match &args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Args::command()).render(&mut page)?;
            output::bytes(&page)?;
        }
        Some(dir) => write(dir).map_err(|error| {
            Trouble::Usage(format!("cannot write the manual to {}: {error}", dir.display()))
        })?,
    }
    Ok(Exit::Done)
}

fn write(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Args::command(), dir)
}
