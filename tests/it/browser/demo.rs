//! The first minute of a person with the demo.

use std::path::{Path, PathBuf};

use serde_json::json;
use thirtyfour::prelude::*;

use super::chromium::Chromium;
use crate::support::server::{Server, text};

/// Exit codes on the cards of commands, in order.
const EXITS: &str = "[...document.querySelectorAll('article.command')].map((card) => \
     card.querySelector('.meta b')?.textContent ?? null)";

/// How far the page could be moved sideways.
const SIDEWAYS: &str =
    "document.documentElement.scrollWidth - document.documentElement.clientWidth";

/// Where the picture goes: beside what the build makes, or into the documentation when that is asked for.
fn picture_place() -> PathBuf {
    if std::env::var("BAZILION_UPDATE_PICTURE").as_deref() == Ok("1") {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agent-page.png")
    } else {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("agent-page.png")
    }
}

#[tokio::test]
async fn a_person_signs_in_with_the_link_and_watches_the_demo_turn() {
    let mut server = Server::start().await;
    let browser = Chromium::start().await;
    let page = &browser.driver;
    browser.resize(1280, 900).await;

    page.goto(text(&server.ready["signInLink"])).await.unwrap();
    let button = page
        .find(By::Css("main button, form button"))
        .await
        .unwrap();
    button.click().await.unwrap();
    browser
        .until("location.pathname.startsWith('/h/demo')", json!(true))
        .await;
    page.goto(format!("{}/h/demo/agents/ada", server.url()))
        .await
        .unwrap();

    browser.value("globalThis.unloaded = false").await;
    let composer = page.find(By::Id("text")).await.unwrap();
    let message = "Fix the failing test and run it";
    composer.send_keys(message).await.unwrap();
    let send = page.find(By::Id("send")).await.unwrap();
    assert_eq!(send.text().await.unwrap(), "Send");
    send.click().await.unwrap();

    browser.until(EXITS, json!(["1", "0"])).await;
    let answered = "[...document.querySelectorAll('#messages .message.assistant .words')]\
         .some((words) => words.textContent.includes('scripted rehearsal'))";
    browser.until(answered, json!(true)).await;
    browser
        .until(
            "document.querySelector('#state').dataset.working",
            json!("false"),
        )
        .await;
    let typed = "document.querySelector('#messages .message.user').innerText.includes(\
         'Fix the failing test and run it')";
    browser.until(typed, json!(true)).await;
    // Cards stand where their commands were called: what comes last is the answer.
    let last = "[...document.querySelectorAll('article.command, #messages .words')].at(-1).textContent\
         .includes('scripted rehearsal')";
    browser.until(last, json!(true)).await;
    assert_eq!(browser.value("globalThis.unloaded").await, false);

    let place = picture_place();
    std::fs::write(&place, browser.picture().await).unwrap();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        let dark = "matchMedia('(prefers-color-scheme: dark)').matches";
        browser.until(dark, json!(scheme == "dark")).await;
        for width in [1280, 390] {
            browser.resize(width, 900).await;
            browser.until("innerWidth", json!(width)).await;
            assert_eq!(browser.value(SIDEWAYS).await, 0, "{width} {scheme}");
            let name = format!("agent-page-{width}-{scheme}.png");
            let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::write(beside, browser.picture().await).unwrap();
        }
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    server.stop();
}
