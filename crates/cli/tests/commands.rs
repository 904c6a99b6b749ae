//! The smaller commands, each run as a process: partitions, context, backup, doctor, trust, demo, help.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{Running, Served, fails, headwater, import, items, ok, run_with_input};

#[test]
fn ranges_are_shown_split_and_merged() {
    let served = Served::in_memory(&["--partitions", "2"]);
    import(&served, &items(0..10));
    let orders = served.orders();
    assert_eq!(ok(&["partitions", "list", &orders]).lines().count(), 3, "a head and two ranges");
    let children = ok(&["partitions", "split", &orders, "0", "--json"]);
    let child: serde_json::Value = serde_json::from_str(children.lines().next().unwrap()).unwrap();
    assert_eq!(child["parents"][0], "0");
    let merged = ok(&["partitions", "merge", &orders, "2", "3", "--json"]);
    assert_eq!(merged.lines().count(), 1, "{merged}");
    let gone = fails(&["partitions", "split", &orders, "0"]);
    assert!(gone.starts_with("error: ") && gone.contains('0'), "{gone}");
    assert!(fails(&["partitions", "split", &orders, "1", "--at", "xyz"]).contains("--at"));
}

#[test]
fn contexts_name_servers_and_never_hold_keys() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..3));
    let dir = tempfile::tempdir().unwrap();
    let context = |arguments: &[&str]| {
        let mut command = headwater(arguments);
        command.env("HEADWATER_CONFIG_DIR", dir.path());
        command
    };
    let run = |arguments: &[&str]| {
        let output = context(arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["context", "add", "dev", &served.url]);
    assert_eq!(run(&["export", "dev:shop/orders", "-"]).lines().count(), 3);
    run(&["context", "use", "dev"]);
    assert_eq!(run(&["export", "shop/orders", "-"]).lines().count(), 3);
    assert!(run(&["context", "list"]).contains("* dev"));
    // A connection string comes through standard input; its key is stored in a separate file.
    let mut add = context(&["context", "add", "prod", "-"]);
    let mut child = add.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let string = b"AccountEndpoint=https://example.org:443/;AccountKey=QUJD;\n";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), string).unwrap();
    assert!(child.wait().unwrap().success());
    let file = std::fs::read_to_string(dir.path().join("contexts.toml")).unwrap();
    assert!(file.contains("example.org") && !file.contains("QUJD"), "{file}");
    assert_eq!(std::fs::read_to_string(dir.path().join("keys/prod")).unwrap(), "QUJD");
    run(&["context", "remove", "prod"]);
    assert!(!dir.path().join("keys/prod").exists());
    let gone = context(&["context", "use", "prod"]).output().unwrap();
    assert!(String::from_utf8_lossy(&gone.stderr).contains("there is no context \"prod\""));
}

#[test]
fn a_backup_is_restored_as_it_was_and_a_doctor_finds_it_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, copy, restored) = (path("data"), path("copy"), path("restored"));
    let served = Served::on(dir.path().join("data").as_path(), "127.0.0.1:0");
    import(&served, &items(0..40));
    let before = ok(&["export", &served.orders(), "-"]);
    let open = fails(&["backup", &data, &copy]);
    assert!(open.contains("another process") && open.contains("running server"), "{open}");
    served.kill();
    let made = ok(&["backup", &data, &copy]);
    assert!(made.contains("40 items"), "{made}");
    assert!(ok(&["backup", &data, &copy]).contains(" 0 of them new"), "nothing is new");
    let back = ok(&["restore", &copy, &restored]);
    assert_eq!(made.rsplit("state ").next(), back.rsplit("state ").next());
    let served = Served::on(dir.path().join("restored").as_path(), "127.0.0.1:0");
    assert_eq!(ok(&["export", &served.orders(), "-"]), before);
    served.kill();
    let well = ok(&["doctor", "--data", &restored]);
    assert!(well.contains("shop/orders partition 0: 40 changes"), "{well}");
    assert!(fails(&["doctor", "--data", &copy]).contains("there is a problem"));
    assert!(fails(&["restore", &data, &path("x")]).contains("cannot restore"));
}

#[test]
fn a_damaged_partition_is_reported_exported_and_taken_from_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, copy) = (path("data"), path("copy"));
    let served = Served::on(dir.path().join("data").as_path(), "127.0.0.1:0");
    import(&served, &items(0..40));
    let before = ok(&["export", &served.orders(), "-"]);
    served.kill();
    ok(&["backup", &data, &copy]);
    let container = std::fs::read_dir(dir.path().join("data/containers")).unwrap();
    let container = container.map(|entry| entry.unwrap().path()).next().unwrap();
    std::fs::remove_file(container.join("00000000/MANIFEST")).unwrap();

    // The server starts, and reports what it does not serve.
    let served = Served::on(dir.path().join("data").as_path(), "127.0.0.1:0");
    let refused = fails(&["export", &served.orders(), "-"]);
    assert!(refused.contains("MANIFEST") && refused.contains("headwater doctor"), "{refused}");
    served.kill();
    assert!(fails(&["doctor", "--data", &data]).contains("there is a problem"));
    assert!(
        !support::run(&["doctor", "--data", &data, "--salvage", &path("out")]).status.success()
    );
    let readable = std::fs::read_dir(dir.path().join("out")).unwrap();
    let files: Vec<_> = readable.map(|entry| entry.unwrap().path()).collect();
    let items = files.iter().find(|path| path.to_string_lossy().ends_with("items.jsonl")).unwrap();
    assert_eq!(std::fs::read_to_string(items).unwrap().lines().count(), 40);
    let said = ok(&["doctor", "--data", &data, "--from-backup", &copy]);
    assert!(said.contains("taken from the backup") && said.contains("0 of them"), "{said}");
    let (_, again) = said.split_once("checking again").unwrap();
    assert!(again.contains("nothing is damaged") && !again.contains("problem"), "{said}");
    ok(&["doctor", "--data", &data]);
    let served = Served::on(dir.path().join("data").as_path(), "127.0.0.1:0");
    assert_eq!(ok(&["export", &served.orders(), "-"]), before);
    served.kill();
}

#[test]
fn a_doctor_tells_a_wrong_key_from_nobody_there() {
    let served = Served::in_memory(&[]);
    let well = ok(&["doctor", &served.url]);
    assert!(
        well.contains("the key is accepted") && well.contains("the clocks differ by"),
        "{well}"
    );
    let wrong = headwater(&["doctor", &served.url]).env("HEADWATER_KEY", "QUJD").output().unwrap();
    let said = String::from_utf8(wrong.stdout).unwrap();
    assert!(!wrong.status.success() && said.contains("does not accept the key"), "{said}");
    let nobody = headwater(&["doctor", "http://127.0.0.1:1"]).output().unwrap();
    assert!(String::from_utf8(nobody.stdout).unwrap().contains("cannot reach"));
}

#[test]
fn a_key_comes_from_a_command_on_both_sides_and_is_never_shown() {
    let key = "c2VjcmV0IHNlY3JldCBzZWNyZXQ=";
    let prints = format!("echo {key}");
    let served = Served::in_memory(&["--key-command", &prints]);
    let well = ok(&["doctor", &served.url, "--key-command", &prints]);
    assert!(well.contains("the key is accepted"), "{well}");
    let other = headwater(&["doctor", &served.url]).output().unwrap();
    assert!(!other.status.success(), "the emulator's key is not accepted");
    for (command, says) in [("exit 3", "failed: exit status: 3"), ("echo no key", "is no key")] {
        let arguments = ["partitions", "list", &served.orders(), "--key-command", command];
        let said = fails(&arguments);
        assert!(said.contains(says) && !said.contains(key), "{said}");
    }
}

#[test]
fn trust_gives_the_certificate_with_which_https_works() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let any = "127.0.0.1:0";
    let arguments = ["serve", "--data", data, "--http", any, "--https", any, "--ready-json"];
    let served = Running::start(&arguments);
    let ready: serde_json::Value = serde_json::from_str(&served.line()).unwrap();
    let (http, https) = (ready["http"].as_str().unwrap(), ready["https"].as_str().unwrap());
    let pem = dir.path().join("ca.pem");
    let pem = pem.to_str().unwrap();
    let said = support::run(&["trust", http, "--out", pem]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("limited to   localhost, 127.0.0.1, ::1, and no others"), "{said}");
    assert!(said.contains("SHA-256 ") && said.contains("ends  "), "{said}");
    assert_eq!(ok(&["trust", "--data", data]), std::fs::read_to_string(pem).unwrap());
    let https = https.replace("127.0.0.1", "localhost");
    let untrusted = headwater(&["doctor", &https]).output().unwrap();
    let said = String::from_utf8(untrusted.stdout).unwrap();
    assert!(!untrusted.status.success() && said.contains("headwater trust"), "{said}");
    assert!(ok(&["doctor", &https, "--authority", pem]).contains("its certificate is trusted"));
    let in_the_clear = headwater(&["doctor", &https.replace("https", "http")]).output().unwrap();
    let said = String::from_utf8(in_the_clear.stdout).unwrap();
    assert!(said.contains(&format!("speaks TLS; use {https}")), "{said}");
    assert!(fails(&["trust", &https]).contains("over the connection it is needed for"));
}

#[test]
fn a_server_with_damaged_certificate_files_starts_trusted_or_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let any = "127.0.0.1:0";
    let serve = ["serve", "--data", data.to_str().unwrap(), "--http", any, "--https", any];
    let serve = [&serve[..], &["--ready-json"]].concat();
    let served = Running::start(&serve);
    served.line();
    served.kill();
    let [cert, key] =
        ["authority.pem", "authority-key.pem"].map(|name| data.join("tls").join(name));
    let trusted = dir.path().join("trusted.pem");
    std::fs::copy(&cert, &trusted).unwrap();

    std::fs::write(&cert, b"").unwrap();
    let served = Running::start(&serve);
    let ready: serde_json::Value = serde_json::from_str(&served.line()).unwrap();
    let https = ready["https"].as_str().unwrap().replace("127.0.0.1", "localhost");
    let said = ok(&["doctor", &https, "--authority", trusted.to_str().unwrap()]);
    assert!(said.contains("its certificate is trusted"), "{said}");
    served.kill();

    let good = std::fs::read(&key).unwrap();
    std::fs::write(&key, &good[..good.len() / 2]).unwrap();
    let refused = fails(&serve);
    for part in [&*format!("{} is damaged", key.display()), "Restore it", "`headwater trust`"] {
        assert!(refused.contains(part), "no {part:?} in: {refused}");
    }
    std::fs::remove_file(&key).unwrap();
    let refused = fails(&serve);
    assert!(refused.contains(&format!("{} is missing", key.display())), "{refused}");
    std::fs::create_dir(&key).unwrap();
    let refused = fails(&serve);
    assert!(refused.contains(&format!("cannot read {}", key.display())), "{refused}");
    assert!(refused.contains("irectory"), "it says why: {refused}");
    std::fs::remove_dir(&key).unwrap();
    std::fs::write(&key, good).unwrap();
    Running::start(&serve).line();
}

/// A system to install into, and a `PATH` with `update-ca-certificates`: Debian's own, or one that does its
/// last step where there is none.
fn scratch_system(dir: &Path) -> (PathBuf, String) {
    let (root, bin) = (dir.join("root"), dir.join("bin"));
    for path in ["usr/local/share/ca-certificates", "usr/share/ca-certificates", "etc/ssl/certs"] {
        std::fs::create_dir_all(root.join(path)).unwrap();
    }
    std::fs::write(root.join("etc/ca-certificates.conf"), "").unwrap();
    std::fs::create_dir(&bin).unwrap();
    let sbin = "/usr/sbin/update-ca-certificates";
    if !Path::new(sbin).exists() {
        write_program(&bin, "cat \"$6\"/*.crt > \"$8/ca-certificates.crt\"");
    }
    (root, format!("{}:/usr/sbin:{}", bin.display(), std::env::var("PATH").unwrap_or_default()))
}

/// Puts an `update-ca-certificates` into a directory.
fn write_program(bin: &Path, script: &str) {
    let program = bin.join("update-ca-certificates");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(program, executable).unwrap();
}

#[test]
fn trust_installs_what_it_says_and_keeps_the_authorities_of_other_servers() {
    let dir = tempfile::tempdir().unwrap();
    let (root, path) = scratch_system(dir.path());
    let installed = || {
        let all = std::fs::read_dir(root.join("usr/local/share/ca-certificates")).unwrap();
        all.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let install = |data: &str| {
        // Administrators often have such a umask, but other users must be able to read the file.
        let mut shell = support::without_settings(std::process::Command::new("sh"));
        shell.args(["-c", "umask 077; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headwater")]);
        let arguments = ["trust", "--data", data, "--install", "--root", root.to_str().unwrap()];
        shell.args(arguments).env("PATH", &path).output().unwrap()
    };
    let bundle = root.join("etc/ssl/certs/ca-certificates.crt");
    let any = "127.0.0.1:0";
    let mut servers = Vec::new();
    for name in ["one", "two"] {
        let data = dir.path().join(name).to_str().unwrap().to_owned();
        let serve = ["serve", "--data", &data, "--http", any, "--https", any, "--ready-json"];
        let served = Running::start(&serve);
        let ready: serde_json::Value = serde_json::from_str(&served.line()).unwrap();
        let https = ready["https"].as_str().unwrap().replace("127.0.0.1", "localhost");
        let shown = String::from_utf8(support::run(&["trust", "--data", &data]).stderr).unwrap();
        let fingerprint = shown.lines().find(|line| line.contains("SHA-256")).unwrap().to_owned();
        servers.push((data, https, fingerprint, served));
    }
    for (index, (data, _, fingerprint, _)) in servers.iter().enumerate() {
        // Installed twice, as after a renewal: there is one file for each authority.
        for _ in 0..2 {
            let output = install(data);
            let said = String::from_utf8(output.stdout).unwrap();
            let complaint = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{complaint}");
            assert!(said.contains(fingerprint), "{said}");
            assert!(said.contains("localhost, 127.0.0.1, ::1, and no others"), "{said}");
            assert_eq!(said.matches("also trusted").count(), index, "{said}");
            let file = said.lines().find_map(|line| line.strip_prefix("installed in ")).unwrap();
            let file = Path::new(file.split(';').next().unwrap());
            let pem = std::fs::read(Path::new(data).join("tls/authority.pem")).unwrap();
            assert_eq!(std::fs::read(file).unwrap(), pem);
            let mode = std::fs::metadata(file).unwrap().permissions();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o644);
            assert!(said.contains(&format!("sudo rm {}", file.display())), "{said}");
            assert_eq!(installed().len(), index + 1);
        }
    }
    for (_, https, ..) in &servers {
        let mut doctor = headwater(&["doctor", https]);
        let doctor = doctor.env("SSL_CERT_FILE", &bundle).env_remove("SSL_CERT_DIR");
        let said = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
        assert!(said.contains("its certificate is trusted"), "{said}");
    }
}

#[test]
fn trust_installs_nothing_that_is_damaged_or_that_the_system_does_not_take() {
    let dir = tempfile::tempdir().unwrap();
    let (root, path) = scratch_system(dir.path());
    let data = dir.path().join("data");
    let serve = ["serve", "--data", data.to_str().unwrap(), "--http", "127.0.0.1:0"];
    let served =
        Running::start(&[&serve[..], &["--https", "127.0.0.1:0", "--ready-json"]].concat());
    served.line();
    served.kill();
    let install = |root: &Path| {
        let arguments = ["trust", "--data", data.to_str().unwrap(), "--install", "--root"];
        let mut command = headwater(&arguments);
        let output = command.arg(root).env("PATH", &path).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let local = root.join("usr/local/share/ca-certificates");
    let is_empty = || std::fs::read_dir(&local).unwrap().next().is_none();
    // The system refuses, so the written file is removed.
    write_program(&dir.path().join("bin"), "echo no room >&2; exit 3");
    let refused = install(&root);
    assert!(refused.contains("not installed") && refused.contains("no room"), "{refused}");
    assert!(is_empty(), "{refused}");
    let elsewhere = install(&dir.path().join("bin"));
    assert!(elsewhere.contains("how other systems do it"), "{elsewhere}");
    // One bit of the certificate is changed.
    let file = data.join("tls/authority.pem");
    let mut pem = std::fs::read(&file).unwrap();
    pem[200] ^= 1;
    std::fs::write(&file, pem).unwrap();
    let damaged = install(&root);
    assert!(damaged.contains(&format!("{} is damaged", file.display())), "{damaged}");
    assert!(is_empty(), "{damaged}");
    assert!(fails(&["trust", "--install", "--out", "x"]).contains("--help"));
}

#[test]
fn a_demo_of_hosts_shows_ranges_moving() {
    let said = ok(&["demo", "--fleet", "--rate", "200"]);
    let pictures: Vec<&str> = said.lines().filter(|line| line.starts_with("    ")).collect();
    let has = |picture: &str, hosts: &[&str]| {
        hosts.iter().all(|host| picture.split(' ').any(|word| word == *host))
    };
    assert!(pictures.iter().any(|picture| has(picture, &["a", "b", "c"])), "{said}");
    let last = pictures.last().unwrap();
    assert!(has(last, &["a", "c"]) && !has(last, &["b"]), "{said}");
    assert!(said.lines().last().unwrap().ends_with("changes were handled"), "{said}");
}

#[test]
fn a_demo_shows_orders_and_ends() {
    let demo = Running::start(&["demo", "--rate", "50", "--seconds", "20"]);
    let lines = demo.lines(20);
    assert!(lines[0].contains("create") && lines[0].contains("status=\"placed\""), "{}", lines[0]);
    assert!(lines.iter().any(|line| line.contains("replace")), "{lines:?}");
    let runtime = headwater_runtime::Runtime::system();
    ok(&["demo", "--seconds", "1"]);
    assert!(runtime.elapsed() < Duration::from_secs(30));
}

#[test]
fn every_command_has_help_worth_reading_and_the_shell_can_complete_it() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = ok(&["completions", shell]);
        assert!(script.contains("partitions") && script.contains("resume"), "{shell}");
    }
    assert!(ok(&["man"]).contains(".TH headwater 1"));
    for command in
        ["serve", "tail", "import", "export", "demo", "doctor", "trust", "backup", "restore"]
    {
        let help = ok(&[command, "--help"]);
        assert!(help.lines().count() > 10, "{command}: {help}");
        let example = help.contains(&format!("    headwater {command} "));
        assert!(example || command == "demo", "{command} shows how it is used: {help}");
    }
}

#[test]
fn a_server_logs_requests_when_told_to_and_refuses_settings_that_make_no_sense() {
    let mut command = headwater(&["serve", "--ephemeral", "--http", "127.0.0.1:0", "--no-https"]);
    let mut child = command
        .env("HEADWATER_LOG", "info")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut ready).unwrap();
    let url = ready.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let url = url.trim_end_matches(',').to_owned();
    assert!(fails(&["tail", &format!("{url}/shop/none")]).contains("shop"));
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let said = support::text(child.stderr.take().unwrap());
    assert!(child.wait().unwrap().success());
    let line = said.lines().find(|line| line.contains("answered")).unwrap_or_default();
    assert!(line.contains("/dbs/shop/colls/none") && line.contains("404"), "{said}");
    assert!(line.contains("activity"), "{said}");
    for partitions in ["0", "1001"] {
        let said = fails(&["serve", "--ephemeral", "--partitions", partitions]);
        assert!(said.contains("give 1 to 1000"), "{said}");
    }
}

#[test]
fn input_that_is_no_item_never_crashes_import() {
    let served = Served::in_memory(&[]);
    let container = served.orders();
    for format in ["json", "ndjson", "csv"] {
        for input in ["", "[", "[[[[", "\u{0}", "{\"id\":", "\"\n\"\"\n", "id\n\u{fffd}\n,,,,\n"] {
            let arguments =
                ["import", &container, "-", "--format", format, "--partition-key", "/customer"];
            let output = run_with_input(&arguments, input);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!said.contains("panicked"), "{format} {input:?}: {said}");
        }
    }
}
