//! What a command can and can not do, asked from inside.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use bazilion::executor::{End, Executor as _, Exit, Kind, ReadOnlyMount};

use crate::support::docker::{Sandbox, docker, frame, identity};

/// The value of a line of `/proc/self/status`.
fn status<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_else(|| panic!("{name} in {text}"))
        .trim_start_matches(':')
        .trim()
}

#[tokio::test]
async fn a_command_has_no_privilege_at_all() {
    let sandbox = Sandbox::new().await;
    let text = sandbox.run("cat /proc/self/status").await.text();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(&text, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(&text, "NoNewPrivs"), "1");
    assert_eq!(status(&text, "Seccomp"), "2");
    let uid = sandbox.user.uid.to_string();
    assert!(
        status(&text, "Uid").split_whitespace().all(|id| id == uid),
        "{text}"
    );
}

#[tokio::test]
async fn there_is_no_network_but_loopback_works() {
    let sandbox = Sandbox::new().await;
    let ran = sandbox
        .run(
            "ls /sys/class/net; ping -c1 -W1 localhost >/dev/null 2>&1; echo name=$?
             nc -l -p 8000 127.0.0.1 -e echo hi & until nc localhost 8000 2>/dev/null; do :; done
             nc -w 2 192.0.2.1 80 || echo refused; nslookup example.com 127.0.0.11 >/dev/null 2>&1 || echo nodns",
        )
        .await;
    let text = ran.text();
    assert!(text.starts_with("lo\n"), "{text}");
    assert!(
        text.contains("hi\n") && text.contains("refused") && text.contains("nodns"),
        "{text}"
    );
}

#[tokio::test]
async fn d057_every_container_is_made_without_network() {
    let sandbox = Sandbox::new().await;
    for kind in [Kind::Command, Kind::Toolbox] {
        let spec = sandbox.spec(kind).await;
        let created = sandbox.executor.create(&spec).await.unwrap();
        let format = "{{.HostConfig.NetworkMode}} {{.Config.NetworkDisabled}} {{.HostConfig.ReadonlyRootfs}} \
                      {{.HostConfig.Privileged}} {{.HostConfig.LogConfig.Type}} {{.HostConfig.CapDrop}} {{len .HostConfig.Binds}}";
        let shown = docker(&["inspect", "--format", format, created.id.as_str()]);
        assert_eq!(
            shown.trim(),
            "none true true false none [ALL] 0",
            "{kind:?}"
        );
        let _ = sandbox
            .executor
            .remove(&identity(&spec, &created))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn only_the_workspace_and_temporary_places_can_be_written() {
    let sandbox = Sandbox::new().await;
    let memory = sandbox.directory.join("memory");
    fs::create_dir(&memory).unwrap();
    fs::write(memory.join("note"), "kept").unwrap();
    let mut spec = sandbox.spec(Kind::Command).await;
    spec.mounts.push(ReadOnlyMount {
        source: memory.clone(),
        target: "/memory".into(),
    });
    let command = "for f in /x /etc/x /etc/hosts /etc/passwd /memory/x /memory/note /.bazilion-toolbox /proc/sysrq-trigger; do
                   (echo x >$f) 2>/dev/null && echo wrote $f; done
                   cat /memory/note; echo; echo t >/tmp/t && echo w >w && echo both; cp /bin/busybox /tmp/busybox && /tmp/busybox echo runs";
    let ran = sandbox.run_in(&spec, &frame(command)).await;
    assert_eq!(ran.text(), "kept\nboth\nruns\n");
    assert_eq!(
        fs::read_to_string(sandbox.workspace.join("w")).unwrap(),
        "w\n"
    );
}

#[tokio::test]
async fn a_missing_mount_is_an_error_and_is_not_made() {
    let sandbox = Sandbox::new().await;
    let mut spec = sandbox.spec(Kind::Command).await;
    let missing = sandbox.directory.join("missing");
    spec.mounts.push(ReadOnlyMount {
        source: missing.clone(),
        target: "/memory".into(),
    });
    let refused = sandbox.executor.create(&spec).await.unwrap_err();
    assert!(!refused.may_have_happened(), "{refused}");
    assert!(!missing.exists());
}

#[tokio::test]
async fn d063_files_belong_to_the_owner_of_the_workspace() {
    let sandbox = Sandbox::new().await;
    let ran = sandbox
        .run("touch a; mkdir b; id -un; whoami; echo $HOME $TMPDIR $LANG")
        .await;
    assert_eq!(ran.text(), "agent\nagent\n/tmp /tmp C.UTF-8\n");
    for name in ["a", "b"] {
        let metadata = fs::metadata(sandbox.workspace.join(name)).unwrap();
        assert_eq!(
            (metadata.uid(), metadata.gid()),
            (sandbox.user.uid, sandbox.user.gid)
        );
    }
}

#[tokio::test]
async fn the_environment_is_the_frame_and_nothing_else() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let mut frame = frame("env | sort");
    frame.env.insert("CI".into(), "true".into());
    let text = sandbox.run_in(&spec, &frame).await.text();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    // The shell itself adds where it is and how deep.
    let ours: Vec<&str> = names
        .into_iter()
        .filter(|n| !["PWD", "SHLVL", "OLDPWD", "_"].contains(n))
        .collect();
    assert_eq!(ours, ["CI", "HOME", "LANG", "PATH", "TMPDIR"]);
}

#[tokio::test]
async fn the_command_stands_in_its_directory_and_links_do_not_lead_there() {
    let sandbox = Sandbox::new().await;
    fs::create_dir_all(sandbox.workspace.join("a/b")).unwrap();
    std::os::unix::fs::symlink("a", sandbox.workspace.join("link")).unwrap();
    let spec = sandbox.spec(Kind::Command).await;
    let mut inside = frame("pwd; cat");
    inside.cwd = "a/b".into();
    assert_eq!(
        sandbox.run_in(&spec, &inside).await.text(),
        "/workspace/a/b\n"
    );
    for cwd in ["link", "missing", "a/../..", "link/b"] {
        let spec = sandbox.spec(Kind::Command).await;
        let mut refused = frame("echo ran");
        refused.cwd = cwd.into();
        let ran = sandbox.run_in(&spec, &refused).await;
        assert!(
            matches!(ran.exit, Exit::NotStarted { .. }),
            "{cwd}: {:?}",
            ran.exit
        );
        assert_eq!(ran.text(), "");
    }
    assert!(!sandbox.workspace.join("missing").exists());
}

#[tokio::test]
async fn nothing_of_one_command_but_the_workspace_reaches_the_next() {
    let sandbox = Sandbox::new().await;
    sandbox
        .run("echo x >/tmp/x; echo x >/dev/shm/x; (sleep 300 &) ; echo kept >kept")
        .await;
    let text = sandbox
        .run("ls /tmp /dev/shm; ps | grep -c [s]leep; cat kept")
        .await
        .text();
    assert!(!text.contains('x'), "{text}");
    assert!(text.ends_with("0\nkept\n"), "{text}");
}

#[tokio::test]
async fn temporary_space_and_memory_are_limited() {
    let sandbox = Sandbox::new().await;
    let mut spec = sandbox.spec(Kind::Command).await;
    spec.limits.tmp_bytes = 8 << 20;
    let command = "dd if=/dev/zero of=/tmp/f bs=1M count=20 2>&1 | tail -1; stat -c %s /tmp/f";
    let text = sandbox.run_in(&spec, &frame(command)).await.text();
    assert!(text.ends_with("8388608\n"), "{text}");

    let mut spec = sandbox.spec(Kind::Command).await;
    spec.limits.memory_bytes = 32 << 20;
    let ran = sandbox
        .run_in(
            &spec,
            &frame("dd if=/dev/zero of=/dev/null bs=200M count=1"),
        )
        .await;
    let Exit::Observed {
        end, out_of_memory, ..
    } = ran.exit
    else {
        panic!("{:?}", ran.exit)
    };
    assert!(out_of_memory, "{end:?}");
    assert!(matches!(end, End::Signal(9) | End::Code(137)), "{end:?}");
}

#[tokio::test]
async fn a_command_cannot_speak_for_the_launcher() {
    let sandbox = Sandbox::new().await;
    let ran = sandbox
        .run(
            "for fd in 0 1 2 3 4 5 6 7 8; do (echo 'X 0 0 0' >/proc/1/fd/$fd) 2>/dev/null && echo wrote; done
             cat /proc/1/environ /proc/1/maps /proc/1/mem 2>/dev/null | wc -c; kill -9 1; kill -STOP 1; kill -TERM 1
             echo 'X 0 0 0' >&2; exit 5",
        )
        .await;
    assert!(
        matches!(
            ran.exit,
            Exit::Observed {
                end: End::Code(5),
                ..
            }
        ),
        "{:?}",
        ran.exit
    );
    assert_eq!(ran.text(), "0\nX 0 0 0\n");
}

#[tokio::test]
async fn an_image_cannot_bring_its_own_entry_point() {
    let sandbox = Sandbox::new().await;
    let image = crate::support::docker::image_with_own_ideas(&sandbox).await;
    let mut spec = sandbox.spec(Kind::Command).await;
    spec.image = image;
    let text = sandbox
        .run_in(&spec, &frame("env | grep -c EVIL; pwd; ls -d /made 2>&1"))
        .await
        .text();
    assert!(text.starts_with("0\n/workspace\n"), "{text}");
    assert!(text.contains("No such file"), "{text}");
}
