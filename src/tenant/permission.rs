//! What an actor may do in its home. Pure: one table, printed by a test.
//!
//! Whatever belongs to another home never gets this far: it was not found. So a refusal here is always a 403, about
//! something the caller may know exists.

use crate::error::{Code, Error, Result};
use crate::identity::{Actor, Caller, Role};

/// A kind of act, as `security.md` groups them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Look at Teams, Agents, conversations, queues.
    Read,
    /// Read receipts and other private output of commands.
    ReadOutput,
    /// Queue, edit, remove, control, spawn, archive, upload.
    Operate,
    /// Decide an approval.
    Approve,
    /// Members, providers, policy, Telegram, backup.
    Administer,
    /// Homes, executors, linked roots, host posture, lease release.
    RunInstance,
}

impl Action {
    /// Every kind, for the printed table.
    pub const ALL: [Action; 6] = [
        Action::Read,
        Action::ReadOutput,
        Action::Operate,
        Action::Approve,
        Action::Administer,
        Action::RunInstance,
    ];

    fn role(self) -> Role {
        match self {
            Action::Read => Role::Viewer,
            Action::ReadOutput | Action::Operate | Action::Approve => Role::Operator,
            Action::Administer | Action::RunInstance => Role::Owner,
        }
    }
}

/// Refuses with `forbidden` (role) or `insufficient_scope` (token) what the caller may not do.
pub fn require(caller: &Caller, action: Action) -> Result<()> {
    let Actor::Operator {
        role,
        scopes,
        instance_admin,
        ..
    } = caller.actor()
    else {
        return match (caller.actor(), action) {
            (Actor::System, _) | (Actor::Agent { .. }, Action::Read) => Ok(()),
            _ => Err(Error::refused(Code::Forbidden, "An Agent may not do this.")),
        };
    };
    let allowed = match action {
        Action::RunInstance => *instance_admin,
        _ => *role >= action.role(),
    };
    if !allowed {
        return Err(Error::refused(Code::Forbidden, needs(action)));
    }
    let scope = match action {
        Action::Read | Action::ReadOutput => scopes.read,
        Action::Operate => scopes.write,
        Action::Approve => scopes.approvals,
        Action::Administer | Action::RunInstance => scopes.admin,
    };
    if scope {
        Ok(())
    } else {
        Err(Error::refused(
            Code::InsufficientScope,
            "This API token does not have the scope for it. Create a token with that scope.",
        ))
    }
}

fn needs(action: Action) -> &'static str {
    match action {
        Action::Read => "You are not a member of this home.",
        Action::ReadOutput | Action::Operate | Action::Approve => {
            "This needs the role operator in this home. Ask an owner."
        }
        Action::Administer => "This needs the role owner in this home. Ask an owner.",
        Action::RunInstance => "This is for the instance admin, who runs the server.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Credential, Scopes};
    use crate::ids::{AgentId, HomeId, OperatorId, TurnId};

    fn operator(role: Role, scopes: Scopes, instance_admin: bool) -> Caller {
        let credential = Credential::Session;
        let id = OperatorId::new();
        Caller::vouch(
            HomeId::new(),
            Actor::Operator {
                id,
                role,
                scopes,
                credential,
                instance_admin,
            },
        )
    }

    #[test]
    fn the_table_of_roles() {
        let allowed = |caller: &Caller| {
            Action::ALL
                .iter()
                .filter(|a| require(caller, **a).is_ok())
                .map(|a| format!("{a:?}"))
                .collect::<Vec<_>>()
        };
        let all = Scopes::ALL;
        assert_eq!(allowed(&operator(Role::Viewer, all, false)), ["Read"]);
        assert_eq!(
            allowed(&operator(Role::Operator, all, false)),
            ["Read", "ReadOutput", "Operate", "Approve"]
        );
        assert_eq!(
            allowed(&operator(Role::Owner, all, false)),
            ["Read", "ReadOutput", "Operate", "Approve", "Administer"]
        );
        assert_eq!(
            allowed(&operator(Role::Viewer, all, true)),
            ["Read", "RunInstance"]
        );
        let agent = Actor::Agent {
            agent: AgentId::new(),
            turn: TurnId::new(),
        };
        assert_eq!(allowed(&Caller::vouch(HomeId::new(), agent)), ["Read"]);
    }

    #[test]
    fn a_scope_narrows_what_the_role_allows() {
        let reader = operator(
            Role::Owner,
            Scopes {
                read: true,
                ..Scopes::default()
            },
            false,
        );
        assert!(require(&reader, Action::Read).is_ok());
        assert_eq!(
            require(&reader, Action::Operate).unwrap_err().code(),
            Code::InsufficientScope
        );
        let viewer = operator(Role::Viewer, Scopes::ALL, false);
        assert_eq!(
            require(&viewer, Action::Operate).unwrap_err().code(),
            Code::Forbidden
        );
    }
}
