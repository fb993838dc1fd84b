//! The first home, its owner, and the demo home: what `up` makes where it is missing. A repeat changes nothing.

use std::path::{Path, PathBuf};

use super::ways_in::{self, LOCAL};
use super::{home, store};
use crate::auth::store::NewAccount;
use crate::auth::{self, Account};
use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::{Code, Error, Result};
use crate::ids::{AgentId, HomeId, OperatorId, ProfileId, TeamId};
use crate::provider::{self, Kind, Model, PutProvider};
use crate::secret::MasterKey;
use crate::team::agent::{self, NewAgent};
use crate::team::profile::{self, NewProfile};
use crate::team::{self, NewTeam, Persona, Root};

const LOOK: Op = Op::locking("instance.first_home");
const ACCOUNT: Op = Op::locking("instance.first_account");
const FILL: Op = Op::locking("instance.fill_home");

/// Address of the account that owns the first home. It is a name to sign in with, not a mailbox.
pub const OWNER: &str = "owner@localhost";
/// Slug of the first home.
pub const HOME: &str = "home";
/// Slug of the demo home, its Team and its profile.
pub const DEMO: &str = "demo";
/// Name of the demo's Agent.
pub const DEMO_AGENT: &str = "ada";

/// A home and its owner.
#[derive(Debug, Clone)]
pub struct First {
    pub home: HomeId,
    pub slug: String,
    pub owner: Account,
}

/// The first home with its owner; made when the instance has none.
pub async fn ensure(db: &Db, master: &MasterKey) -> Result<First> {
    let found = db
        .system(LOOK, &(), async |tx: &mut SystemTx, (): &()| {
            store::first_home_across_homes(tx).await
        })
        .await?;
    match found {
        Some((home, slug)) => Ok(First {
            home,
            slug,
            owner: account(db, OWNER, "Owner", false).await?,
        }),
        None => ensure_home(db, master, HOME, "Home").await,
    }
}

/// A home of that slug, owned by the first owner and reachable for the built-in operator.
async fn ensure_home(db: &Db, master: &MasterKey, slug: &str, name: &str) -> Result<First> {
    let owner = account(db, OWNER, "Owner", false).await?;
    let local = account(db, LOCAL, "local", true).await?;
    let home = match ways_in::find_home(db, slug).await {
        Ok(home) => home,
        Err(error) if error.code() == Code::NotFound => {
            home::create_for(db, master, slug, name, owner.id).await?
        }
        Err(error) => return Err(error),
    };
    ways_in::join(db, home, local.id).await?;
    Ok(First {
        home,
        slug: slug.into(),
        owner,
    })
}

/// The account of that address, made without a password when it is missing; both that `up` makes run the instance.
pub(super) async fn account(db: &Db, email: &str, name: &str, built_in: bool) -> Result<Account> {
    let new = NewAccount {
        id: OperatorId::new(),
        email: email.into(),
        name: name.into(),
        instance_admin: true,
        built_in,
    };
    db.system(
        ACCOUNT,
        &new,
        async |tx: &mut SystemTx, new: &NewAccount| {
            if let Some(found) =
                auth::store::find_account_by_email_across_homes(tx, &new.email).await?
            {
                return Ok(found);
            }
            auth::store::insert_account_across_homes(tx, new).await?;
            auth::store::find_account_by_email_across_homes(tx, &new.email)
                .await?
                .ok_or_else(Error::not_found)
        },
    )
    .await
}

/// Whether an earlier start made the demo home.
pub async fn has_demo(db: &Db) -> Result<bool> {
    match ways_in::find_home(db, DEMO).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Code::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The demo home and where its Team's repository is to lie.
#[derive(Debug, Clone)]
pub struct Demo {
    pub first: First,
    pub repository: PathBuf,
}

/// What the demo home is filled with.
struct Filling<'a> {
    /// Base URL of the rehearsal provider; it has another port at each start.
    base_url: &'a str,
    provider: &'a str,
    model: &'a str,
    master: &'a MasterKey,
    team: TeamId,
    profile: ProfileId,
    agent: AgentId,
}

/// The demo home with provider, Team, profile and Agent.
pub async fn ensure_demo(
    db: &Db,
    master: &MasterKey,
    rehearsal: (&str, &str, &str),
    workspace_base: &Path,
) -> Result<Demo> {
    let first = ensure_home(db, master, DEMO, "Demo").await?;
    let (provider, model, base_url) = rehearsal;
    let filling = Filling {
        base_url,
        provider,
        model,
        master,
        team: TeamId::new(),
        profile: ProfileId::new(),
        agent: AgentId::new(),
    };
    let team = db
        .transact(&SystemTx::enter(first.home), FILL, &filling, fill_in)
        .await?;
    Ok(Demo {
        repository: Root::Managed.directory(workspace_base, first.home, team),
        first,
    })
}

async fn fill_in(tx: &mut TenantTx, filling: &Filling<'_>) -> Result<TeamId> {
    put_provider(tx, filling).await?;
    if let Some(team) = team::list(tx, &())
        .await?
        .into_iter()
        .find(|team| team.slug == DEMO)
    {
        return Ok(team.id);
    }
    let new = NewTeam {
        slug: DEMO.into(),
        name: "Sample repository".into(),
        root: Root::Managed,
        executor: None,
    };
    team::create(tx, &(filling.team, new)).await?;
    let new = NewProfile {
        slug: "developer".into(),
        name: "Developer".into(),
        default_model: format!("{}:{}", filling.provider, filling.model),
        reasoning: None,
        persona: Persona::default(),
    };
    profile::create(tx, &(filling.profile, new)).await?;
    let new = NewAgent {
        name: DEMO_AGENT.into(),
        team: DEMO.into(),
        profile: "developer".into(),
        model: None,
        reasoning: None,
    };
    agent::spawn(tx, &(filling.agent, new)).await?;
    Ok(filling.team)
}

async fn put_provider(tx: &mut TenantTx, filling: &Filling<'_>) -> Result<()> {
    let known = provider::find(tx, filling.provider).await;
    if known.is_ok_and(|known| known.base_url == filling.base_url) {
        return Ok(());
    }
    let body = PutProvider {
        kind: Kind::OpenaiCompletions,
        base_url: filling.base_url.into(),
        api_key: None,
        models: vec![Model {
            id: filling.model.into(),
            context_window: None,
            max_tokens: None,
            images: true,
            reasoning: false,
        }],
    };
    let put = provider::Put {
        name: filling.provider,
        body: &body,
        scripted: true,
        master: filling.master,
        allow_private: true,
    };
    provider::put(tx, &put).await?;
    Ok(())
}
