//! What would be published: each package has its files, and builds from them alone.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::run;

/// What every package must bring.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Packages each crate that may be published, unpacks it, and checks the library, the programs and the examples.
///
/// `cargo package` can do that, but it would build every dependency again. All packages in one workspace, with the
/// profile and the target folder of this one, find nearly all dependencies there.
pub(super) fn verify(root: &Path, metadata: &Value) -> Result<(), String> {
    let packages = published(metadata);
    let mut package = run::cargo(root, &["package", "--offline", "--quiet", "--allow-dirty", "--no-verify"]);
    package.args(packages.iter().flat_map(|(name, _)| ["--package", name]));
    run::run(&mut package)?;

    let target = run::target(metadata)?;
    let workspace = target.join("package/unpacked");
    // A file that is no longer packaged must not be found in what was unpacked before.
    match fs::remove_dir_all(&workspace) {
        Err(error) if workspace.exists() => return Err(cannot("be removed", &workspace, &error)),
        _ => fs::create_dir_all(&workspace).map_err(|error| cannot("be created", &workspace, &error))?,
    }
    for (name, version) in &packages {
        // Without -m files get the one date that cargo gives to all of them, and count as built already.
        let mut tar = Command::new("tar");
        tar.args(["-x", "-z", "-m", "-f"]).arg(target.join(format!("package/{name}-{version}.crate")));
        run::run(tar.current_dir(&workspace))?;
        let folder = workspace.join(format!("{name}-{version}"));
        if let Some(file) = FILES.into_iter().find(|file| !folder.join(file).is_file()) {
            return Err(format!("the package {name} has no {file}"));
        }
    }
    let ours = root.join("Cargo.toml");
    let ours = fs::read_to_string(&ours).map_err(|error| cannot("be read", &ours, &error))?;
    let manifest = workspace.join("Cargo.toml");
    fs::write(&manifest, workspace_of(&packages, &ours))
        .map_err(|error| cannot("be written", &manifest, &error))?;
    fs::copy(root.join("Cargo.lock"), workspace.join("Cargo.lock"))
        .map_err(|error| cannot("be copied", &root.join("Cargo.lock"), &error))?;

    // With examples, so that dependencies have the features that the lints have built.
    let check = ["check", "--offline", "--quiet", "--workspace", "--all-features"];
    let mut check = run::cargo(&workspace, &check);
    run::run(check.args(["--lib", "--bins", "--examples", "--target-dir"]).arg(&target))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot {what}: {error}", path.display())
}

/// The crates of the workspace that may be published, each with its version.
fn published(metadata: &Value) -> Vec<(String, String)> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // `publish = false` is a list of no registries.
    let open = packages.filter(|package| package["publish"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    open.map(|package| (text(&package["name"]), text(&package["version"]))).collect()
}

/// A workspace of the unpacked packages. They take each other instead of what the registry has, and the profiles of
/// our own workspace, without which every dependency would be built again.
fn workspace_of(packages: &[(String, String)], ours: &str) -> String {
    let list: Vec<_> = packages.iter().map(|(name, version)| format!("\"{name}-{version}\"")).collect();
    let mut text =
        format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n", list.join(", "));
    for (name, version) in packages {
        text.push_str(&format!("{name} = {{ path = \"{name}-{version}\" }}\n"));
    }
    let mut kept = false;
    for line in ours.lines() {
        if line.starts_with('[') {
            // A crate that is not published is not in this workspace.
            kept = line.starts_with("[profile.") && !line.contains(".package.tidelock");
        }
        if kept {
            text.push('\n');
            text.push_str(line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn crates_that_are_not_published_are_left_out() {
        let metadata = json!({ "packages": [
            { "name": "tidelock", "version": "0.1.0", "publish": null },
            { "name": "xtask", "version": "0.1.0", "publish": [] },
        ] });
        assert_eq!(published(&metadata), [("tidelock".to_owned(), "0.1.0".to_owned())]);
    }

    #[test]
    fn packages_are_built_with_our_profiles_and_with_each_other() {
        let packages = [("tidelock".to_owned(), "0.1.0".to_owned())];
        let ours = "[workspace]\nmembers = []\n[profile.dev]\ndebug = 1\n[profile.dev.package.tidelock-model]\n\
                    opt-level = 3\n[profile.release]\nlto = true\n[workspace.lints]\n";
        let text = workspace_of(&packages, ours);
        assert!(text.contains("members = [\"tidelock-0.1.0\"]"), "{text}");
        assert!(text.contains("tidelock = { path = \"tidelock-0.1.0\" }"), "{text}");
        assert!(text.ends_with("\n[profile.dev]\ndebug = 1\n[profile.release]\nlto = true"), "{text}");
    }
}
