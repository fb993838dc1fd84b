//! The default image, built here from packages when no registry answers.

use bazilion::coding::hints::{self, HintCode};
use bazilion::executor::{End, Exit, Kind, images, styling};

use crate::support::docker::{Sandbox, alone, frame};

async fn with_default_image() -> Sandbox {
    let mut sandbox = Sandbox::new().await;
    let _lock = alone("sandbox-image.lock");
    let base = sandbox.directory.clone();
    let built = images::sandbox(&sandbox.executor, &base, &|step| eprintln!("{step}")).await;
    sandbox.image = built.unwrap();
    sandbox
}

#[tokio::test]
async fn the_default_image_has_the_promised_tools() {
    let sandbox = with_default_image().await;
    let ran = sandbox
        .run(
            "set -e; git --version; python3 --version; node --version; npm --version; make --version; cc --version
             printf 'int main(void){return 0;}' >/tmp/a.c; cc /tmp/a.c -o /tmp/a; /tmp/a; id -un; python3 -c 'import getpass; getpass.getuser()'
             git init -q .; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first; git status --short",
        )
        .await;
    assert!(
        matches!(
            ran.exit,
            Exit::Observed {
                end: End::Code(0),
                ..
            }
        ),
        "{:?}: {}",
        ran.exit,
        ran.text()
    );
}

#[tokio::test]
async fn d061_an_install_without_network_fails_at_once_and_names_the_package() {
    let sandbox = with_default_image().await;
    let spec = sandbox.spec(Kind::Command).await;
    let ran = sandbox.run_in(&spec, &frame("npm install left-pad")).await;
    assert!(
        matches!(
            ran.exit,
            Exit::Observed {
                end: End::Code(1..),
                ..
            }
        ),
        "{:?}",
        ran.exit
    );
    let found = hints::read(&styling::plain(&ran.text()));
    assert!(
        found.iter().any(|hint| hint.code == HintCode::NetworkDisabled && hint.subject.contains("left-pad")),
        "{found:?} in {}",
        ran.text()
    );
}
