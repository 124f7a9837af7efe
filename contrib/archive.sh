#!/usr/bin/env bash
# Packs a static binary with its manual pages, completions, units and licences, and writes the checksum beside it:
#   contrib/archive.sh target/x86_64-unknown-linux-musl/release/tidelock tidelock-v0.1.0-x86_64-unknown-linux-musl dist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
binary=$1 name=$2 out=$3

# A binary that needs a loader or a C library of the machine would not start on the next one.
if readelf --program-headers "$binary" | grep -q INTERP; then
    echo "$binary is not static: build it for a musl target" >&2
    exit 1
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/$name/completions" "$out"
install -m 755 "$binary" "$folder/$name/tidelock"
"$binary" man --dir "$folder/$name/man/man1"
"$binary" completions bash > "$folder/$name/completions/tidelock.bash"
"$binary" completions zsh > "$folder/$name/completions/_tidelock"
"$binary" completions fish > "$folder/$name/completions/tidelock.fish"
cp -r contrib/systemd contrib/kubernetes crates/tidelock-cli/README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$folder/$name/"

tar --create --gzip --file "$out/$name.tar.gz" --owner 0 --group 0 --directory "$folder" "$name"
(cd "$out" && sha256sum "$name.tar.gz" > "$name.tar.gz.sha256")
