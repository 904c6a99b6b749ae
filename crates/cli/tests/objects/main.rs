//! `headwater backup` and `headwater restore` with third-party object stores: Azurite, Microsoft's emulator of
//! Azure Blob Storage, and moto's emulator of S3. `cargo xtask objects` installs both and runs these tests.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod store;
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use store::Store;
use support::{Running, Served, import, items, ok};

/// Attempts to stop a backup in the middle. It takes tens of milliseconds.
const ATTEMPTS: u32 = 20;

struct Scene {
    dir: tempfile::TempDir,
    store: Store,
    served: Served,
}

impl Scene {
    /// Starts a server with some partitions, and creates an empty container in an object store.
    fn new(store: Store) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let served = Served::on(&dir.path().join("data"), "127.0.0.1:0");
        import(&served, &items(0..2_000));
        for partition in ["0", "1", "2", "3"] {
            ok(&["partitions", "split", &served.orders(), partition]);
        }
        store.create_container();
        Scene { dir, store, served }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.store.url)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.store.command(arguments)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command that must succeed without warnings. Returns its standard output.
    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail. Returns the last line of its error output.
    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> String {
        complaint(&self.run(arguments))
    }

    #[track_caller]
    fn backup(&self, place: &str) -> String {
        self.ok(&["backup", &self.served.url, &self.place(place)])
    }

    /// Restores into a new directory. Returns the output, and the items of a server on it.
    #[track_caller]
    fn restore(&self, place: &str, into: &str) -> (String, Vec<String>) {
        let into = self.path(into);
        let said = self.ok(&["restore", &self.place(place), into.to_str().unwrap()]);
        let restored = Served::on(&into, "127.0.0.1:0");
        let items = exported(&restored);
        restored.kill();
        (said, items)
    }

    /// Starts a backup and stops its process when a part of it is stored but its list is not. `None` if it was
    /// too fast.
    fn backup_half(&self, place: &str) -> Option<Running> {
        let parts = || self.store.list(&format!("{place}/backup/parts/")).len();
        let list = || self.store.get(&format!("{place}/backup/BACKUP.json"));
        let (known, old_list) = (parts(), list());
        let arguments = ["backup", &self.served.url, &self.place(place)];
        let mut backup = Running::of(self.command(&arguments));
        while parts() == known && !backup.has_ended() {}
        signal(&backup, "STOP");
        (!backup.has_ended() && list() == old_list).then_some(backup)
    }
}

/// Panics with the output of the command unless it succeeded.
#[track_caller]
fn succeeded(output: Output) -> Output {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the last line of a failed command's error output.
#[track_caller]
fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "it did not fail");
    let complaint = String::from_utf8_lossy(&output.stderr);
    complaint.lines().last().unwrap_or_default().to_owned()
}

/// Returns every item of the container, sorted.
fn exported(served: &Served) -> Vec<String> {
    let lines = ok(&["export", &served.orders(), "-"]);
    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn signal(process: &Running, name: &str) {
    let pid = process.pid().to_string();
    let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
    assert!(sent.success(), "{name}");
}

/// Returns the state hash that a backup or a restore printed.
fn state(said: &str) -> &str {
    said.rsplit("state ").next().unwrap().trim()
}

/// Returns the bytes that a backup reports, and how many of them it copied.
fn sizes(said: &str) -> (u64, u64) {
    let number = |before: &str| -> u64 {
        let (start, _) = said.split_once(before).unwrap();
        start.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (number(" bytes, "), number(" of them new"))
}

/// A backup, more writes, an incremental backup and a restore give the same items.
fn check_increments(scene: &Scene) {
    let first = scene.backup("shop");
    assert_eq!(sizes(&first).0, sizes(&first).1, "all of it is new: {first}");
    assert_eq!(sizes(&scene.backup("shop")).1, 0, "nothing is new");
    import(&scene.served, &items(1_990..2_010));
    let second = scene.backup("shop");
    let (_, copied) = sizes(&second);
    assert!(copied > 0 && copied < sizes(&first).1 / 10, "{second} after {first}");
    let (restored, items) = scene.restore("shop", "restored");
    assert_eq!(state(&restored), state(&second));
    assert_eq!(items.len(), 2_010);
    assert_eq!(items, exported(&scene.served));
    assert!(scene.store.list("shop/backup/WRITE_CHECK").is_empty());
    // Without a name after the container.
    let whole = ["backup", &scene.served.url, &scene.store.url];
    assert_eq!(state(&scene.ok(&whole)), state(&second));
}

/// A part with one changed bit and a missing part are each refused by name, and repaired by `--verify`.
fn check_damage(scene: &Scene) {
    scene.backup("damaged");
    let place = scene.place("damaged");
    let objects = scene.store.list("damaged/backup/parts/");
    let segment = objects.iter().filter(|name| name.contains(".seg/")).next_back().unwrap();
    let good = scene.store.get(segment).unwrap();
    let mut changed = good.clone();
    changed[good.len() / 2] ^= 1;
    for (number, bytes) in [Some(changed), Some(good[1..].to_vec()), None].into_iter().enumerate() {
        match bytes {
            Some(bytes) => scene.store.put(segment, &bytes),
            None => scene.store.delete(segment),
        }
        let into = scene.path(&format!("from-damaged{number}"));
        let refused = scene.fails(&["restore", &place, into.to_str().unwrap()]);
        assert!(refused.contains(segment.as_str()), "{refused} does not name {segment}");
        assert!(refused.contains("headwater backup --verify"), "{refused}");
        scene.ok(&["backup", "--verify", &scene.served.url, &place]);
        assert_eq!(scene.store.get(segment), Some(good.clone()));
    }
    assert_eq!(scene.restore("damaged", "from-repaired").1, exported(&scene.served));
}

/// A killed first backup cannot be restored, and a killed later one leaves the previous one intact. The next one
/// continues.
fn check_kill(scene: &Scene) {
    let half = |place: &str| {
        let backup = scene.backup_half(place)?;
        backup.kill();
        Some(())
    };
    let place = |attempt: u32| format!("killed{attempt}");
    let attempt = (0..ATTEMPTS).find(|attempt| half(&place(*attempt)).is_some()).unwrap();
    let killed = place(attempt);
    let into = scene.path("from-killed");
    let refused = scene.fails(&["restore", &scene.place(&killed), into.to_str().unwrap()]);
    assert!(refused.contains("was not finished. Start the backup again"), "{refused}");
    assert!(!into.exists(), "nothing was restored");
    let completed = scene.backup(&killed);
    let (bytes, copied) = sizes(&completed);
    assert!(copied < bytes, "it copies everything again: {completed}");

    let killed_again = (0..ATTEMPTS).find(|attempt| {
        let complete = scene.backup(&killed);
        let before = exported(&scene.served);
        import(&scene.served, &items(10_000 + attempt * 500..10_500 + attempt * 500));
        if half(&killed).is_none() {
            return false;
        }
        let (restored, items) = scene.restore(&killed, "before-kill");
        assert_eq!((state(&restored), items), (state(&complete), before));
        true
    });
    assert!(killed_again.is_some(), "every backup was too fast");
    scene.backup(&killed);
    assert_eq!(scene.restore(&killed, "after-kill").1, exported(&scene.served));
}

/// Of two concurrent backups into one place, the later one to complete is refused, and nothing is lost.
fn check_two_at_once(scene: &Scene) {
    let place = |attempt: u32| format!("two{attempt}");
    let slow = |attempt: u32| Some((attempt, scene.backup_half(&place(attempt))?));
    let (attempt, mut slow) = (0..ATTEMPTS).find_map(slow).unwrap();
    import(&scene.served, &items(20_000..20_100));
    let fast = scene.backup(&place(attempt));
    signal(&slow, "CONT");
    let mut printed = String::new();
    while !slow.has_ended() {
        printed.extend(slow.line_soon());
    }
    assert_eq!(printed, "", "the slow one is not complete");
    let (restored, items) = scene.restore(&place(attempt), "after-two");
    assert_eq!(state(&restored), state(&fast));
    assert_eq!(items, exported(&scene.served));
}

/// Invalid settings are reported before anything is copied, with a remedy.
fn check_complaints(scene: &Scene, cases: &[(&[(&str, &str)], &str)]) {
    let place = scene.place("complaints");
    for (variables, expected) in cases {
        let mut command = scene.command(&["backup", &scene.served.url, &place]);
        command.envs(variables.iter().copied());
        let said = complaint(&command.stdin(Stdio::null()).output().unwrap());
        assert!(said.contains(expected), "{variables:?}: {said}");
    }
    let scheme = scene.store.url.split("://").next().unwrap();
    let missing = scene.fails(&["backup", &scene.served.url, &format!("{scheme}://missing/shop")]);
    assert!(missing.contains("missing at 127.0.0.1:"), "{missing}");
    assert!(missing.contains("Create it first"), "{missing}");
    let into = scene.path("from-nothing");
    let nothing = scene.fails(&["restore", &place, into.to_str().unwrap()]);
    assert!(nothing.contains("nothing else is under this name"), "{nothing}");
    assert_eq!(scene.store.list("complaints/"), [] as [&str; 0]);
}

#[test]
fn azure_restores_what_was_backed_up_in_steps() {
    check_increments(&Scene::new(Store::azurite()));
}

#[test]
fn azure_refuses_a_damaged_backup_by_the_name_of_the_object() {
    check_damage(&Scene::new(Store::azurite()));
}

#[test]
fn azure_continues_a_killed_backup_and_never_takes_it_for_whole() {
    check_kill(&Scene::new(Store::azurite()));
}

#[test]
fn azure_keeps_the_first_of_two_backups_that_is_completed() {
    check_two_at_once(&Scene::new(Store::azurite()));
}

#[test]
fn azure_complaints_say_what_to_do() {
    let scene = Scene::new(Store::azurite());
    let read_only = scene.store.shared_access("rl");
    check_complaints(
        &scene,
        &[
            (&[("AZURE_STORAGE_ACCOUNT_NAME", "")], "Set AZURE_STORAGE_ACCOUNT_NAME"),
            (
                &[("AZURE_STORAGE_ACCOUNT_KEY", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=")],
                "the credentials are wrong",
            ),
            (
                &[
                    ("AZURE_CREDENTIAL_TYPE", "sas_token"),
                    ("AZURE_STORAGE_SAS_TOKEN", read_only.as_str()),
                ],
                "may not write to the container backups",
            ),
            (
                &[
                    ("AZURE_CREDENTIAL_TYPE", "managed_identity"),
                    ("AZURE_MSI_ENDPOINT", "http://127.0.0.1:1/token"),
                ],
                "there are no usable credentials",
            ),
            (&[("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1/a")], "cannot reach 127.0.0.1:1"),
            (&[("AZURE_STORAGE_ENDPOINT", "http://192.0.2.1/a")], "AZURE_ALLOW_HTTP=true"),
        ],
    );
}

/// The variable of Azure's own command line.
#[test]
fn azure_takes_a_connection_string() {
    let scene = Scene::new(Store::azurite());
    let mut command = scene.command(&["backup", &scene.served.url]);
    for (name, _) in &scene.store.variables {
        command.env_remove(name);
    }
    command.arg(scene.place("shop"));
    command.env("AZURE_STORAGE_CONNECTION_STRING", scene.store.connection_string());
    succeeded(command.output().unwrap());
    assert_eq!(scene.restore("shop", "restored").1, exported(&scene.served));
}

/// A certificate is trusted only through the machine's trust store or `SSL_CERT_FILE`.
#[test]
fn azure_is_reached_over_tls() {
    let tls = tempfile::tempdir().unwrap();
    let mut store = Store::azurite_with_tls(tls.path());
    store.create_container();
    let served = Served::in_memory(&[]);
    import(&served, &items(0..100));
    let place = format!("{}/shop", store.url);
    let backup = ["backup", &served.url, &place];
    let said = complaint(&store.command(&backup).output().unwrap());
    assert!(said.contains("its certificate is not trusted"), "{said}");
    let trusted = tls.path().join("certificate.pem").to_str().unwrap().to_owned();
    store.variables.push(("SSL_CERT_FILE", trusted));
    succeeded(store.command(&backup).output().unwrap());
    let into = tls.path().join("restored");
    let restore = ["restore", &place, into.to_str().unwrap()];
    let restored = succeeded(store.command(&restore).output().unwrap());
    assert!(String::from_utf8_lossy(&restored.stdout).contains("100 items"));
}

/// A damaged partition is taken from a backup in an object store.
#[test]
fn azure_gives_a_damaged_partition_back() {
    let scene = Scene::new(Store::azurite());
    scene.backup("shop");
    let Scene { dir, store, served } = scene;
    served.kill();
    let data = dir.path().join("data");
    let segments = support::files(&data.join("containers"));
    let largest = segments
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "seg"))
        .max_by_key(|file| std::fs::metadata(file).unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(largest).unwrap();
    bytes[2_000..2_100].fill(0);
    std::fs::write(largest, bytes).unwrap();
    let doctor = ["doctor", "--data", data.to_str().unwrap()];
    let place = format!("{}/shop", store.url);
    let repaired =
        store.command(&[&doctor[..], &["--from-backup", &place]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&repaired.stdout);
    assert!(said.contains("taken from the backup"), "{said}");
    assert!(store.command(&doctor).output().unwrap().status.success());
    // And a backup of a data directory that no server has open.
    let backup = ["backup", data.to_str().unwrap(), &place];
    succeeded(store.command(&backup).output().unwrap());
}

#[test]
fn s3_restores_what_was_backed_up_in_steps() {
    check_increments(&Scene::new(Store::moto()));
}

#[test]
fn s3_refuses_a_damaged_backup_by_the_name_of_the_object() {
    check_damage(&Scene::new(Store::moto()));
}

#[test]
fn s3_continues_a_killed_backup_and_never_takes_it_for_whole() {
    check_kill(&Scene::new(Store::moto()));
}

#[test]
fn s3_keeps_the_first_of_two_backups_that_is_completed() {
    check_two_at_once(&Scene::new(Store::moto()));
}

#[test]
fn s3_complaints_say_what_to_do() {
    check_complaints(
        &Scene::new(Store::moto()),
        &[
            (
                &[
                    ("AWS_ACCESS_KEY_ID", ""),
                    ("AWS_SECRET_ACCESS_KEY", ""),
                    ("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1"),
                ],
                "Set AWS_ACCESS_KEY_ID",
            ),
            (&[("AWS_ENDPOINT_URL", "http://127.0.0.1:1")], "cannot reach 127.0.0.1:1"),
            (&[("AWS_ENDPOINT_URL", "http://192.0.2.1")], "AWS_ALLOW_HTTP=true"),
        ],
    );
}
