//! The chat page and the queue's forms, without script and as htmx and scripts use them.

use axum::http::StatusCode;
use bazilion::db::Op;
use bazilion::identity::{Actor, Caller, Credential, Role, Scopes};
use bazilion::ids::{AgentId, HomeId, ProfileId, TeamId};
use bazilion::team::{self, NewTeam, Root};

use super::site::{Browser, Page, Site};

const ARRANGE: Op = Op::locking("test.arrange");

/// An Agent `scout` in a managed Team; answers the path of its page.
async fn agent(site: &Site) -> String {
    use sqlx::Row as _;
    let mut root = site.database.superuser().await;
    let row = sqlx::query("SELECT id FROM homes WHERE slug = 'lab'")
        .fetch_one(&mut root)
        .await
        .unwrap();
    let home: HomeId = row.get::<uuid::Uuid, _>("id").into();
    let caller = Caller::vouch(
        home,
        Actor::Operator {
            id: site.owner,
            role: Role::Owner,
            scopes: Scopes::ALL,
            credential: Credential::Session,
            instance_admin: true,
        },
    );
    let db = &site.app.db;
    let new = NewTeam {
        slug: "alpha".into(),
        name: "Alpha".into(),
        root: Root::Managed,
        executor: None,
    };
    db.transact(&caller, ARRANGE, &(TeamId::new(), new), team::create)
        .await
        .unwrap();
    let profile = team::profile::NewProfile {
        slug: "dev".into(),
        name: "Dev".into(),
        default_model: "rehearsal:scripted".into(),
        reasoning: None,
        persona: Default::default(),
    };
    db.transact(
        &caller,
        ARRANGE,
        &(ProfileId::new(), profile),
        team::profile::create,
    )
    .await
    .unwrap();
    let new = team::agent::NewAgent {
        name: "scout".into(),
        team: "alpha".into(),
        profile: "dev".into(),
        model: None,
        reasoning: None,
    };
    let agent = db
        .transact(&caller, ARRANGE, &(AgentId::new(), new), team::agent::spawn)
        .await
        .unwrap();
    format!("/h/lab/agents/{}", agent.id)
}

fn message<'a>(page: &Page, text: &'a str) -> Vec<(&'static str, std::borrow::Cow<'a, str>)> {
    let mut fields: Vec<(&'static str, std::borrow::Cow<'a, str>)> = [
        "csrf",
        "requestId",
        "expectedConversation",
        "expectedSelectionRevision",
    ]
    .map(|name| {
        let composer = &page.body[page.body.find("id=\"composer\"").unwrap()..];
        let part = Page {
            status: page.status,
            headers: page.headers.clone(),
            body: composer.to_owned(),
        };
        (name, part.hidden(name).into())
    })
    .into();
    fields.push(("text", text.into()));
    fields
}

async fn send(
    site: &Site,
    browser: &Browser,
    path: &str,
    fields: &[(&str, std::borrow::Cow<'_, str>)],
) -> Page {
    let plain: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (*name, value.as_ref()))
        .collect();
    site.upload(
        browser,
        &format!("{path}/queue"),
        &plain,
        &[("files", "notes.txt", b"hello")],
    )
    .await
}

#[tokio::test]
async fn the_form_without_script_queues_once_however_often_it_is_posted() {
    let site = Site::new().await;
    let path = agent(&site).await;
    let browser = site.signed_in().await;
    let page = site.get(&browser, &path).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    assert!(
        page.body.contains("scripted rehearsal"),
        "the model is a rehearsal and says so"
    );

    let fields = message(&page, "Do <b>this</b>\r\nand that");
    for _ in 0..2 {
        let answer = send(&site, &browser, &path, &fields).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        assert_eq!(answer.location(), format!("{path}#queue"));
    }
    let page = site.get(&browser, &path).await;
    assert_eq!(
        page.body.matches("<li class=\"item ").count(),
        1,
        "{}",
        page.body
    );
    assert!(
        page.body
            .contains("Do &#60;b&#62;this&#60;/b&#62;\nand that"),
        "{}",
        page.body
    );
    assert!(
        page.body.contains("notes.txt") && page.body.contains("5 B"),
        "{}",
        page.body
    );
    assert!(page.body.contains("Queue follow-up"), "{}", page.body);
}

#[tokio::test]
async fn a_script_gets_the_item_and_problems_as_documents() {
    let site = Site::new().await;
    let path = agent(&site).await;
    let browser = site.signed_in().await;
    let page = site.get(&browser, &path).await;
    let script = Browser {
        accept: Some("application/json"),
        ..browser.clone()
    };
    let stored = send(&site, &script, &path, &message(&page, "one")).await;
    assert_eq!(stored.status, StatusCode::CREATED, "{}", stored.body);
    assert!(stored.body.contains("\"requestId\""), "{}", stored.body);
    let other = send(
        &site,
        &script,
        &path,
        &message(&page, "another text, same identity"),
    )
    .await;
    assert_eq!(other.status, StatusCode::CONFLICT);
    assert!(other.body.contains("request_conflict"), "{}", other.body);

    let out = Browser {
        cookie: None,
        ..script
    };
    let refused = send(&site, &out, &path, &message(&page, "one")).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(refused.body.contains("unauthenticated"), "{}", refused.body);
}

#[tokio::test]
async fn the_panel_pauses_edits_and_removes_and_says_what_is_stale() {
    let site = Site::new().await;
    let path = agent(&site).await;
    let browser = site.signed_in().await;
    let page = site.get(&browser, &path).await;
    let csrf = page.hidden("csrf");
    send(&site, &browser, &path, &message(&page, "first words")).await;

    let htmx = Browser {
        htmx: true,
        ..browser.clone()
    };
    let revision = page.hidden("expectedRevision");
    let paused = site
        .post(
            &htmx,
            &format!("{path}/queue/pause"),
            &[("csrf", &csrf), ("expectedRevision", &revision)],
        )
        .await;
    assert_eq!(paused.status, StatusCode::OK, "{}", paused.body);
    assert!(
        paused.body.contains("Resume queue") && paused.body.contains("id=\"queue\""),
        "{}",
        paused.body
    );
    let stale = site
        .post(
            &htmx,
            &format!("{path}/queue/pause"),
            &[("csrf", &csrf), ("expectedRevision", &revision)],
        )
        .await;
    assert_eq!(stale.status, StatusCode::CONFLICT);
    assert!(
        stale.body.contains("role=\"alert\"") && stale.body.contains("id=\"queue\""),
        "{}",
        stale.body
    );

    let at = paused.body.find(&format!("{path}/queue/0")).unwrap();
    let item = paused.body[at..]
        .split('"')
        .next()
        .unwrap()
        .trim_end_matches("/remove")
        .to_owned();
    let form = site.get(&browser, &item).await;
    assert_eq!(form.status, StatusCode::OK, "{}", form.body);
    let names = [
        "csrf",
        "requestId",
        "expectedRevision",
        "expectedConversation",
        "expectedSelectionRevision",
    ];
    let mut fields: Vec<(&str, String)> = names.map(|name| (name, form.hidden(name))).into();
    fields.push(("text", "second words".into()));
    let plain: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let saved = site.upload(&browser, &item, &plain, &[]).await;
    assert_eq!(saved.status, StatusCode::SEE_OTHER, "{}", saved.body);

    let mut late = plain.clone();
    let fresh = bazilion::ids::RequestId::new().to_string();
    late[1] = ("requestId", &fresh);
    late[5] = ("text", "words that came too late");
    let beside = site.upload(&browser, &item, &late, &[]).await;
    assert_eq!(beside.status, StatusCode::CONFLICT);
    assert!(
        beside.body.contains("words that came too late"),
        "{}",
        beside.body
    );
    assert!(
        beside.body.contains("What stands there now"),
        "{}",
        beside.body
    );
}

#[tokio::test]
async fn files_without_the_forms_token_before_them_are_not_read() {
    let site = Site::new().await;
    let path = agent(&site).await;
    let browser = site.signed_in().await;
    let page = site
        .upload(
            &browser,
            &format!("{path}/queue"),
            &[],
            &[("files", "a", b"x")],
        )
        .await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn d33_the_stream_goes_on_after_the_number_it_is_given() {
    use axum::http::{Method, header};
    use futures_util::StreamExt as _;
    let site = Site::new().await;
    let path = agent(&site).await;
    let browser = site.signed_in().await;
    let page = site.get(&browser, &path).await;
    send(&site, &browser, &path, &message(&page, "one")).await;

    let read = async |at: &str| {
        let answer = site
            .ask(
                &browser,
                Method::GET,
                &format!("{path}/events?after={at}"),
                None,
                axum::body::Body::empty(),
            )
            .await;
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
        let mut body = answer.into_body().into_data_stream();
        String::from_utf8(body.next().await.unwrap().unwrap().to_vec()).unwrap()
    };
    let first = read("0").await;
    assert!(
        first.contains("event: item") && first.contains("id: 1"),
        "{first}"
    );
    let unknown = read("99999").await;
    assert!(unknown.contains("event: reload"), "{unknown}");
}
