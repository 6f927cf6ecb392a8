//! The build script: tells `bolide --version` what was built, refuses a RocksDB library that does
//! not belong to cargo's bindings, and puts the C++ library into the program.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=config/build.rs");
    name_the_build();
    check_rocksdb();
    if variable("CARGO_CFG_TARGET_OS") == "linux" {
        link_cxx_library_statically();
    }
}

/// Sets BUILD_COMMIT, BUILD_TARGET and BUILD_PROFILE for the compiler.
fn name_the_build() {
    // Git appends to it with every commit and checkout. In a source archive there is none.
    let log = Path::new(".git/logs/HEAD");
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    let commit = env::var("BUILD_COMMIT").ok().or_else(commit);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=BUILD_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=BUILD_PROFILE={}", profile());
}

fn commit() -> Option<String> {
    // Only of this repository: a source archive may lie within somebody else's.
    Path::new(".git").exists().then_some(())?;
    let output = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned())
}

/// The profile's own name: PROFILE says `release` for every profile that inherits from it.
fn profile() -> String {
    let out = variable("OUT_DIR");
    let folder = Path::new(&out).ancestors().nth(3);
    let name = folder.and_then(|folder| folder.file_name());
    name.map_or_else(
        || variable("PROFILE"),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn check_rocksdb() {
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    let Ok(library) = env::var("ROCKSDB_LIB_DIR") else {
        if env::consts::OS == "linux" {
            println!(
                "cargo::warning=RocksDB was compiled one file at a time; config/prerequisites compiles it in a quarter of the time"
            );
        }
        return;
    };
    // A library that somebody else has made is theirs to answer for.
    let Ok(made_from) = fs::read_to_string(Path::new(&library).join("crate")) else {
        return;
    };
    let sources = variable("DEP_ROCKSDB_CARGO_MANIFEST_DIR");
    let used = Path::new(&sources).file_name().unwrap_or_default();
    if used.to_string_lossy() != made_from.trim() {
        println!(
            "cargo::error={library} was compiled from {}, but cargo uses {}: run config/prerequisites again",
            made_from.trim(),
            used.to_string_lossy()
        );
    }
}

/// Makes the linker find `libstdc++.a` where it looks first, so that `-lstdc++` of the bindings
/// means it: a program that runs wherever its glibc does. Without that file the library is shared.
fn link_cxx_library_statically() {
    println!("cargo::rerun-if-env-changed=CXX");
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let Some(archive) = file_of_compiler(&compiler, "libstdc++.a") else {
        return;
    };
    let folder = Path::new(&variable("OUT_DIR")).join("cxx");
    let link = folder.join("libstdc++.a");
    let _ = fs::remove_file(&link);
    fs::create_dir_all(&folder)
        .and_then(|()| fs::copy(&archive, &link))
        .unwrap_or_else(|error| panic!("cannot copy {} to {link:?}: {error}", archive.display()));
    println!("cargo::rustc-link-search=native={}", folder.display());
}

/// Where a compiler has one of its libraries; it answers with the bare name if it has none.
fn file_of_compiler(compiler: &str, name: &str) -> Option<PathBuf> {
    let output = Command::new(compiler)
        .arg(format!("-print-file-name={name}"))
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
