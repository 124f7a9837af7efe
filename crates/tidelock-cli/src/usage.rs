//! Reads the command line, and says in one sentence what is wrong with it.

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{args::Args, exit::Exit, output, store};

/// Reads the command line. What cannot be run has been explained when this returns an exit.
pub(crate) fn parse() -> Result<Args, Exit> {
    Args::try_parse().map_err(|error| explain(&error))
}

fn explain(error: &clap::Error) -> Exit {
    // Scripts tell "the command said no" from "tidelock was called wrongly" by the code, and
    // clap's own 2 is a code that many commands use.
    let exit = if error.use_stderr() { Exit::Failed } else { Exit::Done };
    match error.kind() {
        // If the help cannot be printed there is nobody left to tell.
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => drop(error.print()),
        kind => {
            let message = error.to_string();
            let mut text = sentence(&message);
            if kind == ErrorKind::UnknownArgument && message.contains(" -- <CMD>") {
                text.push_str(about_the_command(error, std::env::args()));
            }
            output::complain(&text);
        }
    }
    exit
}

/// What is wrong around the command of `tidelock run`.
fn about_the_command(error: &clap::Error, args: impl Iterator<Item = String>) -> &'static str {
    let mut before = args.take_while(|arg| match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(invalid)) => arg != invalid,
        _ => false,
    });
    // `--wait -- CMD`: the option took the -- for its value.
    if before.any(|arg| arg == "--") {
        return "; the option before -- needs a value";
    }
    // `tidelock run NAME CMD`: flock and timeout want it so.
    "; the command comes after --"
}

/// The first paragraph and the tips of clap's message, as one sentence.
fn sentence(message: &str) -> String {
    let mut paragraphs = message.split("\n\n");
    let what = paragraphs.next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let tips = paragraphs.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: "));
    // A `--` before what is no flag of ours is seldom what was meant: a command is.
    let tips = tips.filter(|tip| !tip.contains("as a value"));
    let parts = std::iter::once(what).chain(tips);
    let parts = parts.map(|part| {
        let words = part.split_whitespace().map(|word| {
            // A URL that was typed in the wrong place may hold a password.
            if word.contains("://") { store::without_password(word) } else { word.to_owned() }
        });
        words.collect::<Vec<_>>().join(" ")
    });
    parts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_one_line_that_names_it() {
        let error = Args::try_parse_from(["tidelock", "run"]).unwrap_err();
        let text = sentence(&error.to_string());
        assert_eq!(text, "the following required arguments were not provided: <NAME> <CMD>...");
    }

    #[test]
    fn a_tip_follows_the_mistake() {
        let error = Args::try_parse_from(["tidelock", "sohw", "x"]).unwrap_err();
        let text = sentence(&error.to_string());
        assert!(text.contains("'sohw'; ") && text.contains("'show'"), "{text}");
    }

    #[test]
    fn a_command_in_the_wrong_place_and_an_option_without_a_value_are_told_apart() {
        for (args, says) in [
            (&["run", "job", "make"][..], "; the command comes after --"),
            (&["run", "job", "make", "--", "all"], "; the command comes after --"),
            (&["run", "job", "--wait", "--", "make"], "; the option before -- needs a value"),
        ] {
            let args = [&["tidelock"], args].concat();
            let error = Args::try_parse_from(&args).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{args:?}: {error}");
            assert_eq!(about_the_command(&error, args.iter().map(ToString::to_string)), says, "{args:?}");
        }
    }

    #[test]
    fn a_password_in_the_wrong_place_is_not_repeated() {
        let error = Args::try_parse_from(["tidelock", "stores", "redis://me:secret@host/0"]).unwrap_err();
        let text = sentence(&error.to_string());
        assert!(text.contains("host/0") && !text.contains("secret"), "{text}");
    }
}
