//! A new home works at once, and the machine's own token opens it, for one role.

use bazilion::auth::{store as accounts, token};
use bazilion::db::{Db, Op, SystemTx, TenantTx};
use bazilion::error::Code;
use bazilion::identity::Role;
use bazilion::instance::home;
use bazilion::instance::ways_in::{self, Mint};
use bazilion::secret::MasterKey;
use bazilion::team;

use crate::support::db::TestDb;

async fn home_of(db: &Db, slug: &str) -> bazilion::ids::HomeId {
    let (master, _) = MasterKey::generate().unwrap();
    let owner = home::Owner {
        email: format!("{slug}@example.org"),
        name: "Ada".into(),
        instance_admin: false,
    };
    home::create(db, &master, slug, "A home", &owner)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_new_home_has_a_default_team_and_profile_and_its_slug_is_taken() {
    let test = TestDb::new().await;
    let db = test.connect().await.unwrap();
    let home = home_of(&db, "first").await;
    let caller = SystemTx::enter(home);
    let op = Op::locking("test");
    let teams = db.transact(&caller, op, &(), team::list).await.unwrap();
    let profiles = db
        .transact(&caller, op, &(), team::profile::list)
        .await
        .unwrap();
    assert_eq!(
        teams.iter().map(|t| t.slug.as_str()).collect::<Vec<_>>(),
        ["default"]
    );
    assert_eq!(
        profiles.iter().map(|p| p.slug.as_str()).collect::<Vec<_>>(),
        ["default"]
    );

    let (master, _) = MasterKey::generate().unwrap();
    let owner = home::Owner {
        email: "x@example.org".into(),
        name: "X".into(),
        instance_admin: false,
    };
    let again = home::create(&db, &master, "first", "Another", &owner)
        .await
        .unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn two_homes_do_not_see_each_other() {
    let test = TestDb::new().await;
    let db = test.connect().await.unwrap();
    let (a, b) = (home_of(&db, "a").await, home_of(&db, "b").await);
    let op = Op::locking("test");
    let of_a = db
        .transact(&SystemTx::enter(a), op, &(), team::list)
        .await
        .unwrap();
    let seen = db
        .transact(
            &SystemTx::enter(b),
            op,
            of_a[0].id.to_string().as_str(),
            async |tx: &mut TenantTx, id: &str| team::show(tx, id).await,
        )
        .await;
    assert_eq!(seen.unwrap_err().code(), Code::NotFound);
}

fn of(slug: &str, role: Role) -> Mint {
    Mint::Home {
        slug: slug.into(),
        role,
    }
}

async fn fresh_link(db: &Db, email: &str) -> secrecy::SecretString {
    let path = ways_in::sign_in_link(db, email).await.unwrap();
    secrecy::SecretString::from(path.rsplit('/').next().unwrap().to_owned())
}

#[tokio::test]
async fn a_machine_token_is_of_one_home_and_one_role() {
    let test = TestDb::new().await;
    let db = test.connect().await.unwrap();
    let home = home_of(&db, "first").await;
    let minted = [
        (
            ways_in::token(&db, &of("first", Role::Viewer))
                .await
                .unwrap(),
            Role::Viewer,
            false,
            vec!["read"],
        ),
        (
            ways_in::token(&db, &of("first", Role::Owner))
                .await
                .unwrap(),
            Role::Owner,
            true,
            vec!["read", "write", "approvals", "admin"],
        ),
        (
            ways_in::token(&db, &Mint::InstanceAdmin).await.unwrap(),
            Role::Viewer,
            true,
            vec!["admin"],
        ),
    ];
    for (text, role, admin, scopes) in minted {
        let hash = token::hash(&text).unwrap();
        let found = db
            .system_look(
                Op::locking("test"),
                &hash,
                accounts::find_token_across_homes,
            )
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (found.home, found.role_limit, found.instance_admin),
            (home, Some(role), admin)
        );
        assert_eq!(found.scopes, scopes);
    }
    let absent = ways_in::token(&db, &of("nowhere", Role::Owner))
        .await
        .unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);
}

#[tokio::test]
async fn a_sign_in_link_works_once() {
    let test = TestDb::new().await;
    let db = test.connect().await.unwrap();
    home_of(&db, "first").await;
    let link = fresh_link(&db, "FIRST@example.org").await;
    assert_eq!(
        bazilion::auth::use_link(&db, &link).await.unwrap().email,
        "first@example.org"
    );
    assert_eq!(
        bazilion::auth::use_link(&db, &link)
            .await
            .unwrap_err()
            .code(),
        Code::Unauthenticated
    );

    let late = test.connect_at(time::Duration::hours(2)).await.unwrap();
    let link = fresh_link(&db, "first@example.org").await;
    assert_eq!(
        bazilion::auth::use_link(&late, &link)
            .await
            .unwrap_err()
            .code(),
        Code::Unauthenticated
    );
}
