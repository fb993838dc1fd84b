//! From a claim to a settled item, with a real engine, a real database, and the stand-in for Pi.

use std::sync::Arc;
use std::time::Duration;

use bazilion::app::App;
use bazilion::clock::SystemClock;
use bazilion::config::{self, Config};
use bazilion::db::Op;
use bazilion::db::wake::Wake;
use bazilion::executor::images;
use bazilion::provider::{self, Kind, Put, PutProvider};
use bazilion::queue::model::{Item, Status};
use bazilion::readiness;
use bazilion::secret::MasterKey;
use bazilion::worker::{Settings, Worker};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::docker::{Sandbox, docker, static_toolbox};
use crate::support::pi_stand_in::{Beat, PiStandIn};
use crate::support::queue::Home;

/// A home whose items a worker of this process runs.
struct Office {
    home: Home,
    sandbox: Sandbox,
    app: App,
    worker: JoinHandle<()>,
}

impl Office {
    async fn open(pi: PiStandIn) -> Self {
        let home = Home::new().await;
        let sandbox = Sandbox::new().await;
        let (master, _) = MasterKey::generate().unwrap();
        let mut root = home.root().await;
        sqlx::query("INSERT INTO home_keys (home_id, wrapped, created_at) VALUES ($1, $2, now())")
            .bind(home.id.uuid())
            .bind(master.new_home_key(home.id).unwrap())
            .execute(&mut root)
            .await
            .unwrap();
        sqlx::query(
            "INSERT INTO instance (instance_id, written_xid, database_oid, system_identifier, timeline)
             VALUES ($1, pg_current_xact_id(), 1, 1, 1)",
        )
        .bind(sandbox.instance)
        .execute(&mut root)
        .await
        .unwrap();
        let toolbox = images::toolbox(&sandbox.executor, &static_toolbox())
            .await
            .unwrap();
        let app = App {
            db: home.db.clone(),
            wakes: home.wakes.clone(),
            clock: Arc::new(SystemClock),
            executor: sandbox.executor.clone(),
            runtime: Arc::new(pi),
            config: Arc::new(config(&sandbox)),
            master: Arc::new(master),
            readiness: readiness::Shared::default(),
            inspecting: Default::default(),
            stopping: CancellationToken::new(),
        };
        add_model(&home, &app).await;
        std::fs::create_dir_all(&app.config.workspace_base).unwrap();
        let settings = Settings {
            sandbox_image: sandbox.image.reference.clone(),
            toolbox_image: toolbox.reference,
            user: sandbox.user,
            secrets: Vec::new(),
        };
        let worker = Worker::begin(app.clone(), settings, tokio::sync::broadcast::channel(64).0)
            .await
            .unwrap();
        Self {
            home,
            sandbox,
            app,
            worker: tokio::spawn(worker.run()),
        }
    }

    /// The item, once it has the status.
    async fn until(&self, item: &Item, status: Status) -> Item {
        let mut last = item.status;
        for _ in 0..1200 {
            let now = self.home.item(item).await;
            if now.status == status {
                return now;
            }
            last = now.status;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "the item is {last:?}, not {status:?}: {:?}",
            self.home.item(item).await
        );
    }

    /// Ends in order; nothing is left in the database or on the engine.
    async fn close(self) {
        self.app.stopping.cancel();
        self.app.wakes.send(Wake::Dispatch);
        self.worker.await.unwrap();
        for table in ["workspace_leases", "lease_resources", "incarnations"] {
            let sql: &'static str = match table {
                "workspace_leases" => "SELECT count(*) FROM workspace_leases",
                "lease_resources" => "SELECT count(*) FROM lease_resources",
                _ => "SELECT count(*) FROM incarnations",
            };
            assert_eq!(self.home.count(sql).await, 0, "{table}");
        }
        let label = format!("label=bazilion.instance={}", self.sandbox.instance);
        assert_eq!(docker(&["ps", "--all", "--quiet", "--filter", &label]), "");
        self.home.assert_sound().await;
    }
}

fn config(sandbox: &Sandbox) -> Config {
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        public_url: None,
        insecure_http: false,
        allow_private_providers: true,
        clock_offset: time::Duration::ZERO,
        data_dir: sandbox.directory.join("data"),
        cache_dir: sandbox.directory.join("cache"),
        workspace_base: sandbox.directory.join("workspaces"),
        allowed_roots: Vec::new(),
        executor: config::Executor::default(),
        sandbox_image: Some(sandbox.image.reference.clone()),
        metrics_listen: None,
    }
}

async fn add_model(home: &Home, app: &App) {
    let model = serde_json::from_value(json!({"id": "one"})).unwrap();
    let body = PutProvider {
        kind: Kind::OpenaiCompletions,
        base_url: "http://127.0.0.1:9/v1".into(),
        api_key: Some("sk-fake-key".to_owned().into()),
        models: vec![model],
    };
    let put = Put {
        name: "fake",
        body: &body,
        scripted: false,
        master: &app.master,
        allow_private: true,
    };
    app.db
        .transact(
            &home.caller,
            Op::locking("test.provider"),
            &put,
            provider::put,
        )
        .await
        .unwrap();
}

fn command(text: &str) -> serde_json::Value {
    json!({"command": text, "cwd": ".", "purpose": "test", "timeoutSeconds": 60})
}

#[tokio::test]
async fn an_item_is_claimed_admitted_run_and_settled_and_nothing_is_left() {
    let pi = PiStandIn::new(|_| {
        vec![
            Beat::call(
                "write",
                json!({"path": "hello.txt", "content": "from a tool\n"}),
            ),
            Beat::call("coding_command", command("cat hello.txt; exit 3")),
            Beat::say("The test failed as it should."),
        ]
    });
    let office = Office::open(pi.clone()).await;
    let ada = office.home.agent("ada").await;
    let item = office.home.say(ada, "run the test").await.unwrap();
    let done = office.until(&item, Status::Completed).await;
    assert!(done.turn_id.is_some());
    let evidence = "SELECT count(*) FROM coding_receipts
                    WHERE state = 'failed' AND exit_code = 3 AND tail = E'from a tool\\n' AND cleanup = 'confirmed'";
    assert_eq!(office.home.count(evidence).await, 1);
    assert_eq!(
        office
            .home
            .count("SELECT count(*) FROM turns WHERE state = 'completed'")
            .await,
        1
    );
    assert!(
        pi.prompts()[0]
            .context
            .as_ref()
            .unwrap()
            .contains("Posture: docker")
    );
    assert_eq!(pi.prompts()[0].text, "run the test");
    office.close().await;
}

#[tokio::test]
async fn a_stop_ends_the_turn_with_its_command_and_pauses_the_queue() {
    let pi = PiStandIn::new(|_| {
        vec![
            Beat::call("coding_command", command("touch begun; sleep 300")),
            Beat::say("no"),
        ]
    });
    let office = Office::open(pi).await;
    let ada = office.home.agent("ada").await;
    let item = office.home.say(ada, "wait").await.unwrap();
    office.until(&item, Status::Running).await;
    let active = "SELECT count(*) FROM coding_receipts WHERE state = 'running'";
    while office.home.count(active).await == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let turn = office.home.item(&item).await.turn_id.unwrap();
    let asked = bazilion::turn::cancel(
        &office.app.db,
        &office.app.wakes,
        &office.home.caller,
        ada,
        turn,
    )
    .await
    .unwrap();
    assert!(asked);
    let ended = office.until(&item, Status::Cancelled).await;
    assert_eq!(ended.diagnostic.unwrap().code, "stopped");
    assert_eq!(
        office
            .home
            .count("SELECT count(*) FROM coding_receipts WHERE state = 'cancelled'")
            .await,
        1
    );
    office.close().await;
}

#[tokio::test]
async fn an_engine_that_is_gone_in_the_middle_leaves_the_item_uncertain() {
    let office = Office::open(PiStandIn::new(|_| vec![Beat::Die])).await;
    let ada = office.home.agent("ada").await;
    let item = office.home.say(ada, "hello").await.unwrap();
    let ended = office.until(&item, Status::Uncertain).await;
    assert_eq!(ended.diagnostic.unwrap().code, "engine_lost");
    office.close().await;
}

#[tokio::test]
async fn without_an_engine_the_item_waits_and_says_for_what() {
    let pi = PiStandIn::saying("back");
    pi.set_missing(Some("not installed"));
    let office = Office::open(pi.clone()).await;
    let ada = office.home.agent("ada").await;
    let item = office.home.say(ada, "hello").await.unwrap();
    let waiting = "SELECT count(*) FROM queue_items WHERE waiting_for = 'engine'";
    while office.home.count(waiting).await == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    pi.set_missing(None);
    office.until(&item, Status::Completed).await;
    office.close().await;
}
