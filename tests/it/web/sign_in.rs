//! Signing in and out, and what a cookie may be.

use axum::http::{Method, StatusCode, header};

use super::site::{Browser, EMAIL, PASSWORD, Site, cookie};

#[tokio::test]
async fn a_person_signs_in_and_lands_in_their_only_home() {
    let site = Site::new().await;
    let page = site.get(&Browser::default(), "/").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    assert_eq!(page.location(), "/sign-in?next=%2F");

    let browser = site.signed_in().await;
    let page = site.get(&browser, "/").await;
    assert_eq!(page.location(), "/h/lab");
    let page = site.get(&browser, "/h/lab").await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    assert!(page.body.contains("No Agent yet"), "{}", page.body);
    assert!(
        page.headers[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap()
            .contains("script-src 'self'")
    );
    assert_eq!(page.headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(
        site.get(&browser, "/h/other").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_wrong_password_is_said_on_the_form_and_keeps_the_address() {
    let site = Site::new().await;
    let page = site
        .post(
            &Browser::default(),
            "/sign-in",
            &[("email", EMAIL), ("password", "wrong")],
        )
        .await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
    assert!(
        page.body.contains("role=\"alert\"") && page.body.contains(EMAIL),
        "{}",
        page.body
    );
    assert!(page.headers.get(header::SET_COOKIE).is_none());
}

#[tokio::test]
async fn the_cookie_on_loopback_is_http_only_and_lax_and_over_https_bound_to_the_host() {
    let credentials = [("email", EMAIL), ("password", PASSWORD)];
    let site = Site::new().await;
    let page = site
        .post(&Browser::default(), "/sign-in", &credentials)
        .await;
    let set = page.headers[header::SET_COOKIE]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(set.starts_with("bazilion="), "{set}");
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Lax") && set.contains("Path=/"),
        "{set}"
    );
    assert!(!set.contains("Secure"), "{set}");

    let site =
        Site::with(|config| config.public_url = Some("https://bazilion.example".parse().unwrap()))
            .await;
    let browser = Browser {
        host: Some("bazilion.example"),
        ..Browser::default()
    };
    let page = site.post(&browser, "/sign-in", &credentials).await;
    let set = page.headers[header::SET_COOKIE]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        set.starts_with("__Host-bazilion=") && set.contains("Secure") && !set.contains("Domain"),
        "{set}"
    );
}

#[tokio::test]
async fn d124_plain_http_elsewhere_explains_and_sets_nothing() {
    let site = Site::new().await;
    let lan = Browser {
        host: Some("192.168.1.7:8080"),
        ..Browser::default()
    };
    for page in [
        site.get(&lan, "/sign-in").await,
        site.post(
            &lan,
            "/sign-in",
            &[("email", EMAIL), ("password", PASSWORD)],
        )
        .await,
        site.get(&lan, &site.link().await).await,
        site.post(&lan, &site.link().await, &[]).await,
    ] {
        assert_eq!(page.status, StatusCode::FORBIDDEN);
        assert!(
            page.body.contains("plain HTTP") && page.body.contains("--insecure-http"),
            "{}",
            page.body
        );
        assert!(page.headers.get(header::SET_COOKIE).is_none());
    }
    let site = Site::with(|config| config.insecure_http = true).await;
    let page = site
        .post(
            &lan,
            "/sign-in",
            &[("email", EMAIL), ("password", PASSWORD)],
        )
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_link_is_used_up_by_its_button_once_and_not_by_looking() {
    let site = Site::new().await;
    let link = site.link().await;
    for _ in 0..3 {
        let preview = site.get(&Browser::default(), &link).await;
        assert_eq!(preview.status, StatusCode::OK);
        assert!(preview.headers.get(header::SET_COOKIE).is_none());
    }
    let page = site.post(&Browser::default(), &link, &[]).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.body);
    let browser = Browser {
        cookie: Some(cookie(&page)),
        ..Browser::default()
    };
    assert_eq!(site.get(&browser, "/h/lab").await.status, StatusCode::OK);
    let again = site.post(&Browser::default(), &link, &[]).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    assert!(
        again.body.contains("was used or has expired"),
        "{}",
        again.body
    );
}

#[tokio::test]
async fn signing_out_asks_first_and_needs_the_sessions_own_token() {
    let site = Site::new().await;
    let browser = site.signed_in().await;
    let page = site.get(&browser, "/sign-out").await;
    let token = page.hidden("csrf");
    let refused = site
        .post(&browser, "/sign-out", &[("csrf", "another")])
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let out = site.post(&browser, "/sign-out", &[("csrf", &token)]).await;
    assert_eq!(out.location(), "/sign-in");
    assert_eq!(
        site.get(&browser, "/h/lab").await.status,
        StatusCode::SEE_OTHER
    );
}

#[tokio::test]
async fn a_form_from_another_site_is_refused() {
    let site = Site::new().await;
    let browser = site.signed_in().await;
    let foreign = axum::http::Request::builder()
        .method(Method::POST)
        .uri("/sign-out")
        .header(header::HOST, "127.0.0.1:8080")
        .header(header::ORIGIN, "https://evil.example")
        .header("sec-fetch-site", "cross-site")
        .header(header::COOKIE, browser.cookie.clone().unwrap())
        .body(axum::body::Body::empty())
        .unwrap();
    let answer = tower::ServiceExt::oneshot(bazilion::routes::router(site.app.clone()), foreign)
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(
        site.get(&browser, "/h/lab").await.status,
        StatusCode::OK,
        "still signed in"
    );
}

#[tokio::test]
async fn assets_are_kept_for_a_year_under_their_digest_only() {
    let site = Site::new().await;
    let page = site.get(&Browser::default(), "/sign-in").await;
    let at = page.body.find("/static/").unwrap();
    let href = page.body[at..]
        .split("/icon.svg")
        .next()
        .unwrap()
        .to_owned();
    let css = site
        .get(&Browser::default(), &format!("{href}/app.css"))
        .await;
    assert_eq!(css.status, StatusCode::OK);
    assert!(
        css.headers[header::CACHE_CONTROL]
            .to_str()
            .unwrap()
            .contains("immutable")
    );
    assert!(
        css.headers[header::CONTENT_TYPE]
            .to_str()
            .unwrap()
            .starts_with("text/css")
    );
    let old = site.get(&Browser::default(), "/static/0000/app.css").await;
    assert_eq!(old.headers[header::CACHE_CONTROL], "no-cache");
    assert_eq!(
        site.get(&Browser::default(), "/static/0000/../Cargo.toml")
            .await
            .status,
        StatusCode::NOT_FOUND
    );
}
