//! A whole router over a database of its own, and a browser that knows no more than cookies and forms.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, header};
use bazilion::app::App;
use bazilion::auth;
use bazilion::clock::SystemClock;
use bazilion::config::{Asked, Config};
use bazilion::db::wake::Wakes;
use bazilion::db::{Op, SystemTx};
use bazilion::executor::docker::{DockerConfig, DockerExecutor};
use bazilion::ids::OperatorId;
use bazilion::runtime::pi::PiRuntime;
use bazilion::runtime::pi::install::PiInstall;
use bazilion::secret::MasterKey;
use bazilion::tenant::{self, NewHome};
use bazilion::{readiness, routes};
use secrecy::{ExposeSecret as _, SecretString};
use tower::ServiceExt as _;

use crate::support::db::TestDb;
use crate::support::docker::scratch;

pub const EMAIL: &str = "ada@example.org";
pub const PASSWORD: &str = "a long enough passphrase";

pub struct Site {
    pub app: App,
    pub database: TestDb,
    pub owner: OperatorId,
    router: axum::Router,
}

/// An answer with its body read.
pub struct Page {
    pub status: StatusCode,
    pub headers: axum::http::HeaderMap,
    pub body: String,
}

impl Page {
    pub fn location(&self) -> &str {
        self.headers[header::LOCATION].to_str().unwrap()
    }

    /// The value of the first hidden field of this name.
    pub fn hidden(&self, name: &str) -> String {
        let mark = format!(r#"name="{name}" value=""#);
        let at = self
            .body
            .find(&mark)
            .unwrap_or_else(|| panic!("no field {name} in {}", self.body));
        self.body[at + mark.len()..]
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    }
}

/// Who asks: an address to ask at, and the cookie it was given.
#[derive(Default, Clone)]
pub struct Browser {
    pub cookie: Option<String>,
    pub host: Option<&'static str>,
    pub accept: Option<&'static str>,
    pub htmx: bool,
}

impl Site {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let database = TestDb::new().await;
        let db = database.connect().await.unwrap();
        let directory = scratch();
        let asked = Asked {
            data_dir: Some(directory.join("data")),
            cache_dir: Some(directory.join("cache")),
            ..Asked::default()
        };
        let mut config = Config::load(&asked, &|_| None).unwrap();
        change(&mut config);
        let (master, _) = MasterKey::generate().unwrap();
        let executor = DockerExecutor::new(DockerConfig {
            socket: directory.join("no-engine"),
            base: directory.join("base"),
            toolbox_program: directory.join("no-toolbox"),
            runtime: None,
        });
        let clock = Arc::new(SystemClock);
        let install = PiInstall::at(&config.cache_dir);
        let runtime = PiRuntime::new(install, directory.join("turns"), clock.clone()).unwrap();
        let app = App {
            db,
            wakes: Wakes::default(),
            clock,
            executor: Arc::new(executor),
            runtime: Arc::new(runtime),
            config: Arc::new(config),
            master: Arc::new(master),
            readiness: readiness::Shared::default(),
            inspecting: Default::default(),
            stopping: Default::default(),
        };
        let owner = person(&app).await;
        Self {
            router: routes::router(app.clone()),
            app,
            database,
            owner,
        }
    }

    pub async fn get(&self, browser: &Browser, path: &str) -> Page {
        read(
            self.ask(browser, Method::GET, path, None, Body::empty())
                .await,
        )
        .await
    }

    pub async fn post(&self, browser: &Browser, path: &str, fields: &[(&str, &str)]) -> Page {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        let kind = "application/x-www-form-urlencoded";
        read(
            self.ask(
                browser,
                Method::POST,
                path,
                Some(kind),
                form.finish().into(),
            )
            .await,
        )
        .await
    }

    /// A form with files, each `(field, name, bytes)`.
    pub async fn upload(
        &self,
        browser: &Browser,
        path: &str,
        fields: &[(&str, &str)],
        files: &[(&str, &str, &[u8])],
    ) -> Page {
        let mut body = Vec::new();
        for (name, value) in fields {
            body.extend(
                format!(
                    "--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
                )
                .bytes(),
            );
        }
        for (field, name, bytes) in files {
            let head = format!(
                "--edge\r\ncontent-disposition: form-data; name=\"{field}\"; filename=\"{name}\"\r\ncontent-type: text/plain\r\n\r\n"
            );
            body.extend(head.bytes());
            body.extend_from_slice(bytes);
            body.extend(b"\r\n");
        }
        body.extend(b"--edge--\r\n");
        read(
            self.ask(
                browser,
                Method::POST,
                path,
                Some("multipart/form-data; boundary=edge"),
                body.into(),
            )
            .await,
        )
        .await
    }

    pub async fn ask(
        &self,
        browser: &Browser,
        method: Method,
        path: &str,
        kind: Option<&str>,
        body: Body,
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::HOST, browser.host.unwrap_or("127.0.0.1:8080"))
            .header(header::ACCEPT, browser.accept.unwrap_or("text/html"));
        if method == Method::POST {
            request = request.header("sec-fetch-site", "same-origin");
        }
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if let Some(cookie) = &browser.cookie {
            request = request.header(header::COOKIE, cookie);
        }
        if browser.htmx {
            request = request.header("hx-request", "true");
        }
        self.router
            .clone()
            .oneshot(request.body(body).unwrap())
            .await
            .unwrap()
    }

    /// A browser in which the owner is signed in.
    pub async fn signed_in(&self) -> Browser {
        let page = self
            .post(
                &Browser::default(),
                "/sign-in",
                &[("email", EMAIL), ("password", PASSWORD)],
            )
            .await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.body);
        Browser {
            cookie: Some(cookie(&page)),
            ..Browser::default()
        }
    }

    pub async fn link(&self) -> String {
        let link = auth::mint_link(&self.app.db, self.owner).await.unwrap();
        format!("/sign-in/link/{}", link.expose_secret())
    }
}

/// Name and value of the cookie that an answer sets.
pub fn cookie(page: &Page) -> String {
    let set = page.headers[header::SET_COOKIE].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

async fn read(response: Response<Body>) -> Page {
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    Page {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

/// Ada, with a password, who owns the home `lab`.
async fn person(app: &App) -> OperatorId {
    let id = OperatorId::new();
    let hash = auth::password::hash(SecretString::from(PASSWORD))
        .await
        .unwrap();
    let new = auth::store::NewAccount {
        id,
        email: EMAIL.into(),
        name: "Ada".into(),
        instance_admin: true,
        built_in: false,
    };
    app.db
        .system(
            Op::locking("test.person"),
            &(new, hash),
            async |tx: &mut SystemTx, (new, hash): &(auth::store::NewAccount, String)| {
                auth::store::insert_account_across_homes(tx, new).await?;
                auth::store::set_password_across_homes(tx, new.id, hash, None).await
            },
        )
        .await
        .unwrap();
    let home = NewHome::prepare("lab", "Lab", id, &app.master).unwrap();
    tenant::create_home(&app.db, &home).await.unwrap();
    id
}
