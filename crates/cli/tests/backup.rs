//! `headwater backup` of a running server and `headwater restore`, each run as a process.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use support::{Running, Served, fails, files, headwater, ids, import, items, ok, run};

struct Dirs(tempfile::TempDir);

impl Dirs {
    fn new() -> Dirs {
        Dirs(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// Parses the number of bytes that a backup reports as copied.
fn copied(said: &str) -> u64 {
    let (start, _) = said.split_once(" of them new").unwrap();
    start.rsplit(' ').next().unwrap().parse().unwrap()
}

fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines
}

/// A backup during writes has everything acknowledged before it began. The restored server continues
/// with the LSNs and feed positions of the original.
#[test]
fn a_backup_of_a_running_server_restores_every_acknowledged_write() {
    let dirs = Dirs::new();
    let served = Served::on(&dirs.path("data"), "127.0.0.1:0");
    import(&served, &items(0..300));
    ok(&["partitions", "split", &served.orders(), "0"]);
    import(&served, &items(300..600));
    let before = ok(&["export", &served.orders(), "-"]);
    let position = dirs.text("position");
    let tail = |orders: &str, count: usize| {
        let limit = count.to_string();
        let arguments = ["tail", orders, "--from", "beginning", "--limit", &limit];
        let mut tail = Running::start(&[&arguments[..], &["--resume", &position]].concat());
        let lines = tail.lines(count);
        // It writes its position when it ends.
        while !tail.has_ended() {}
        lines
    };
    let mut seen = ids(&tail(&served.orders(), 600));

    let writer = served.orders();
    let mut import_more = headwater(&["import", &writer, "-"]);
    let mut importer = import_more
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = importer.stdin.take().unwrap();
    let mut feed = |ids: std::ops::Range<u32>| {
        std::io::Write::write_all(&mut input, items(ids).as_bytes()).unwrap();
    };
    feed(600..3_000);
    let mut backup = Running::start(&["backup", &served.url, &dirs.text("copy")]);
    let mut next = 3_000;
    while !backup.has_ended() && next < 200_000 {
        feed(next..next + 100);
        next += 100;
    }
    let said = backup.line();
    assert!(said.contains("backed up"), "{said}");
    drop(input);
    assert!(importer.wait().unwrap().success());
    served.kill();

    ok(&["restore", &dirs.text("copy"), &dirs.text("restored")]);
    let served = Served::on(&dirs.path("restored"), "127.0.0.1:0");
    let after = ok(&["export", &served.orders(), "-"]);
    let after = sorted(&after);
    for line in before.lines() {
        assert!(after.binary_search(&line).is_ok(), "{line} is missing");
    }
    // A reader of the original continues after its position, and sees nothing twice.
    seen.extend(ids(&tail(&served.orders(), after.len() - 600)));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), after.len(), "each change once");
    import(&served, &items(900_000..900_001));
    assert_eq!(ids(&tail(&served.orders(), 1)), [900_000], "new changes come behind the old ones");
    served.kill();
}

#[test]
fn a_second_backup_transfers_only_what_is_new() {
    let dirs = Dirs::new();
    let served = Served::on(&dirs.path("data"), "127.0.0.1:0");
    import(&served, &items(0..2_000));
    let first = copied(&ok(&["backup", &served.url, &dirs.text("copy")]));
    assert!(first > 200_000, "{first}");
    let parts = files(&dirs.path("copy"));
    assert_eq!(copied(&ok(&["backup", &served.url, &dirs.text("copy")])), 0);
    assert_eq!(files(&dirs.path("copy")), parts);
    import(&served, &items(2_000..2_010));
    let second = copied(&ok(&["backup", &served.url, &dirs.text("copy")]));
    assert!(second > 0 && second < first / 20, "{second} bytes after {first}");
    served.kill();
    let restored = ok(&["restore", &dirs.text("copy"), &dirs.text("restored")]);
    assert!(restored.contains("2010 items"), "{restored}");
}

#[test]
fn a_damaged_backup_is_refused() {
    let dirs = Dirs::new();
    let served = Served::on(&dirs.path("data"), "127.0.0.1:0");
    import(&served, &items(0..100));
    ok(&["backup", &served.url, &dirs.text("copy")]);
    let parts: Vec<PathBuf> = files(&dirs.path("copy/backup/parts"));
    assert!(parts.len() >= 4, "{parts:?}");
    let mut attempt = 0;
    let mut refused = |damaged: &Path| {
        attempt += 1;
        let into = dirs.text(&format!("into{attempt}"));
        let complaint = fails(&["restore", &dirs.text("copy"), &into]);
        let name = damaged.file_name().unwrap().to_str().unwrap();
        assert!(complaint.contains(name), "{complaint} does not name {name}");
        assert!(complaint.contains("headwater backup --verify"), "{complaint}");
        // A partly restored directory does not open.
        let opened = fails(&["backup", &into, &dirs.text("of-damaged")]);
        assert!(opened.contains("delete it and restore the backup again"), "{opened}");
    };
    for part in &parts {
        let good = std::fs::read(part).unwrap();
        let mut changed = good.clone();
        changed[good.len() / 2] ^= 1;
        std::fs::write(part, changed).unwrap();
        refused(part);
        std::fs::write(part, &good[..good.len() - 1]).unwrap();
        refused(part);
        std::fs::remove_file(part).unwrap();
        refused(part);
        std::fs::write(part, good).unwrap();
    }
    let mut changed = std::fs::read(&parts[0]).unwrap();
    changed[1] ^= 1;
    std::fs::write(&parts[0], changed).unwrap();
    ok(&["backup", "--verify", &served.url, &dirs.text("copy")]);
    ok(&["restore", &dirs.text("copy"), &dirs.text("repaired")]);
    served.kill();
}

#[test]
fn a_killed_backup_leaves_the_last_one_restorable() {
    let dirs = Dirs::new();
    let served = Served::on(&dirs.path("data"), "127.0.0.1:0");
    import(&served, &items(0..200));
    let first = ok(&["backup", &served.url, &dirs.text("copy")]);
    let state =
        |said: &str| said.rsplit("state ").next().unwrap().lines().next().map(str::to_owned);
    import(&served, &items(200..5_000));
    // Killed when its first new part exists: it has begun and is not complete.
    let known = files(&dirs.path("copy")).len();
    let mut backup = Running::start(&["backup", &served.url, &dirs.text("copy")]);
    while files(&dirs.path("copy")).len() == known && !backup.has_ended() {}
    backup.kill();
    let restored = ok(&["restore", &dirs.text("copy"), &dirs.text("restored")]);
    let is_first = state(&restored) == state(&first);
    assert!(is_first || restored.contains("5000 items"), "{restored}");
    // The next one completes it.
    ok(&["backup", &served.url, &dirs.text("copy")]);
    assert!(ok(&["restore", &dirs.text("copy"), &dirs.text("again")]).contains("5000 items"));
    served.kill();
}

/// Checks that `restore` and the server on the restored data print no warnings.
#[test]
fn a_healthy_restore_prints_no_warnings() {
    let dirs = Dirs::new();
    let served = Served::on(&dirs.path("data"), "127.0.0.1:0");
    for round in 0..3 {
        import(&served, &items(0..500));
        ok(&["partitions", "split", &served.orders(), &(round * 2).to_string()]);
    }
    ok(&["backup", &served.url, &dirs.text("copy")]);
    served.kill();
    let restored = run(&["restore", &dirs.text("copy"), &dirs.text("restored")]);
    assert!(restored.status.success());
    assert_eq!(String::from_utf8_lossy(&restored.stderr), "", "restore");
    let data = dirs.text("restored");
    let serve = ["serve", "--http", "127.0.0.1:0", "--no-https", "--ready-json", "--data", &data];
    let complaints = dirs.path("complaints");
    let mut command = headwater(&serve);
    command.stderr(std::fs::File::create(&complaints).unwrap()).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut ready = String::new();
    let stdout = server.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let orders = format!("{}/shop/orders", ready["http"].as_str().unwrap());
    assert_eq!(ok(&["export", &orders, "-"]).lines().count(), 500);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(std::fs::read_to_string(complaints).unwrap(), "", "serve");
}

#[test]
fn a_backup_goes_into_a_directory_of_its_own_and_needs_a_key_that_writes() {
    let dirs = Dirs::new();
    let served = Served::in_memory(&[]);
    std::fs::create_dir(dirs.path("other")).unwrap();
    std::fs::write(dirs.path("other/file"), "").unwrap();
    let refused = fails(&["backup", &served.url, &dirs.text("other")]);
    assert!(refused.contains("is not empty and holds no backup"), "{refused}");
    for odd in ["ftp://host/backup", "az://", "az://container/a//b", "az://container/a?sig=x"] {
        let refused = fails(&["backup", &served.url, odd]);
        assert!(refused.contains(odd), "{refused}");
    }
    let refused = fails(&["backup", "az://container/shop", &dirs.text("copy")]);
    assert!(refused.contains("restore it with `headwater restore`"), "{refused}");
    let refused = fails(&["backup", &served.orders(), &dirs.text("copy")]);
    assert!(refused.contains("a backup is of all of them"), "{refused}");
    let key = dirs.path("key");
    std::fs::write(&key, "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=").unwrap();
    let key = key.to_str().unwrap();
    let refused = fails(&["backup", "--key-file", key, &served.url, &dirs.text("copy")]);
    assert!(refused.contains("cannot begin a backup"), "{refused}");
    assert!(!dirs.path("copy/backup/BACKUP.json").exists());
}
