//! The files of a data directory by kind, and the ways to damage one.

use crate::Outcome;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file with its kind and the partition that depends on it.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Kind of the file, such as `sealed segment`.
    pub(crate) name: &'static str,
    /// Its path in the data directory.
    pub(crate) path: String,
    /// Text that an error about the file contains.
    pub(crate) named: &'static str,
    /// The partition that needs it, such as `one/0`; `none` if no partition does.
    pub(crate) partition: &'static str,
}

impl Kind {
    /// Whether damage of this file may have an outcome.
    pub(crate) fn allows(&self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Whole => true,
            Outcome::Quarantined => {
                matches!(self.name, "sealed segment" | "active segment" | "manifest")
            }
            Outcome::Refused => {
                matches!(self.name, "catalog segment" | "catalog manifest" | "lock")
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    FlipFirst,
    FlipMiddle,
    FlipLast,
    Empty,
    Half,
    Missing,
    Zeros,
    Garbage,
    Directory,
    Denied,
}

pub(crate) const DAMAGE: [Damage; 10] = [
    Damage::FlipFirst,
    Damage::FlipMiddle,
    Damage::FlipLast,
    Damage::Empty,
    Damage::Half,
    Damage::Missing,
    Damage::Zeros,
    Damage::Garbage,
    Damage::Directory,
    Damage::Denied,
];

impl Damage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Damage::FlipFirst => "has another first byte",
            Damage::FlipMiddle => "has another byte in the middle",
            Damage::FlipLast => "has another last byte",
            Damage::Empty => "is empty",
            Damage::Half => "is cut in half",
            Damage::Missing => "is missing",
            Damage::Zeros => "has zeros at its end",
            Damage::Garbage => "has garbage at its end",
            Damage::Directory => "is a directory",
            Damage::Denied => "cannot be read",
        }
    }

    /// Whether this damage has an effect: empty files have no bytes to change, and a superuser can read any file.
    pub(crate) fn applies(self, kind: &Kind) -> bool {
        match self {
            Damage::FlipFirst | Damage::FlipMiddle | Damage::FlipLast | Damage::Half => {
                !matches!(kind.name, "lock" | "index lock" | "index layout")
            }
            Damage::Denied => !is_superuser(),
            _ => true,
        }
    }

    pub(crate) fn apply(self, path: &Path) {
        let mut bytes = std::fs::read(path).unwrap();
        let length = bytes.len();
        match self {
            Damage::FlipFirst => bytes[0] ^= 0x41,
            Damage::FlipMiddle => bytes[length / 2] ^= 0x41,
            Damage::FlipLast => bytes[length - 1] ^= 0x41,
            Damage::Empty => bytes.clear(),
            Damage::Half => bytes.truncate(length / 2),
            Damage::Zeros => bytes.extend_from_slice(&[0; 5_000]),
            Damage::Garbage => bytes.extend_from_slice(&[0xa5; 5_000]),
            Damage::Missing => return std::fs::remove_file(path).unwrap(),
            Damage::Directory => {
                std::fs::remove_file(path).unwrap();
                std::fs::create_dir(path).unwrap();
                return std::fs::write(path.join("file"), b"x").unwrap();
            }
            Damage::Denied => return deny(path),
        }
        std::fs::write(path, bytes).unwrap();
    }
}

#[cfg(unix)]
fn deny(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
}

#[cfg(not(unix))]
fn deny(_: &Path) {}

/// Whether this process can read files without any permission.
fn is_superuser() -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    deny(file.path());
    std::fs::read(file.path()).is_ok()
}

/// All files below a directory, as relative paths.
fn all(dir: &Path) -> Vec<String> {
    let (mut found, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                found.push(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn copy(from: &Path, to: &Path) {
    for name in all(from) {
        let target: PathBuf = to.join(&name);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(from.join(&name), target).unwrap();
    }
}

/// Cuts off the preallocated space in the journal of the index engine.
pub(crate) fn trim_journals(dir: &Path) {
    for name in all(dir).iter().filter(|name| name.ends_with(".jnl")) {
        let bytes = std::fs::read(dir.join(name)).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        std::fs::write(dir.join(name), &bytes[..used.max(16)]).unwrap();
    }
}

/// One file of each kind, or all files if `HEADWATER_MATRIX` is set.
pub(crate) fn kinds(dir: &Path) -> Vec<Kind> {
    let names = all(dir);
    let is_long = std::env::var_os("HEADWATER_MATRIX").is_some();
    let mut seen = BTreeSet::new();
    let kinds = names.iter().map(|path| kind_of(path, &names));
    kinds.filter(|kind| is_long || seen.insert(kind.name)).collect()
}

fn kind_of(path: &str, names: &[String]) -> Kind {
    let file = path.rsplit('/').next().unwrap();
    let (dir, extension) = (&path[..path.len() - file.len()], file.rsplit('.').next().unwrap());
    let is_last = |path: &str| {
        let is_sibling = |name: &&String| name.starts_with(dir) && name.ends_with(".seg");
        names.iter().rfind(is_sibling).is_some_and(|last| last == path)
    };
    let in_log = match (file, extension) {
        ("MANIFEST", _) => Some("manifest"),
        ("LIVENESS", _) => Some("liveness"),
        (_, "tab") => Some("table"),
        (_, "seg") if is_last(path) => Some("active segment"),
        (_, "seg") => Some("sealed segment"),
        _ => None,
    };
    let (name, named) = match (path.split('/').next().unwrap(), in_log) {
        ("catalog", Some("manifest")) => ("catalog manifest", "catalog"),
        ("catalog", Some("liveness")) => ("catalog liveness", "catalog"),
        ("catalog", Some("table")) => ("catalog table", "catalog"),
        ("catalog", _) => ("catalog segment", "catalog"),
        ("containers", Some(name)) => (name, "containers/"),
        ("containers", None) => ("container file", "containers/"),
        ("index", _) if file == "lock" => ("index lock", "index"),
        ("index", _) if file.starts_with("LAYOUT") => ("index layout", "index"),
        ("index", _) if extension == "jnl" => ("index journal", "index"),
        ("index", _) if path.contains("/0/tables/") => ("index table of keyspaces", "index"),
        ("index", _) if path.contains("/tables/") => ("index table", "index"),
        ("index", _) if file == "current" => ("index current", "index"),
        ("index", _) if file.starts_with('v') => ("index list", "index"),
        ("index", _) => ("index other", "index"),
        ("LOCK", _) => ("lock", "LOCK"),
        ("CATALOG.json", _) => ("snapshot", "CATALOG.json"),
        _ => ("other", "nothing"),
    };
    let mut parts = path.split('/').skip(1);
    let partition = match (in_log.is_some(), parts.next(), parts.next()) {
        (true, Some(container), Some("00000000")) if container.ends_with('1') => "one/0",
        (true, Some(container), Some("00000001")) if container.ends_with('1') => "one/1",
        (true, Some(_), Some("00000000")) => "two/0",
        _ => "none",
    };
    Kind { name, path: path.to_owned(), named, partition }
}
