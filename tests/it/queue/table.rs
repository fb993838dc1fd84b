//! The table of moves, in the code and in the database.

use bazilion::queue::Status;

use crate::support::queue::Home;

#[tokio::test]
async fn the_moves_of_the_code_and_of_the_trigger_are_the_same() {
    let home = Home::new().await;
    let mut root = home.root().await;
    for from in Status::ALL {
        for to in Status::ALL {
            for restoring in [false, true] {
                let allowed: bool =
                    sqlx::query_scalar("SELECT coalesce(queue_move_allowed($1, $2, $3), false)")
                        .bind(from.as_str())
                        .bind(to.as_str())
                        .bind(restoring)
                        .fetch_one(&mut root)
                        .await
                        .unwrap();
                assert_eq!(
                    allowed,
                    from.may_become(*to, restoring),
                    "{from:?} -> {to:?}, restoring {restoring}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_database_refuses_a_move_outside_the_table_and_a_changed_receipt() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.say(agent, "x").await.unwrap();
    let mut root = home.root().await;
    for sql in [
        "UPDATE queue_items SET status = 'completed', finished_at = now()",
        "UPDATE queue_items SET status = 'uncertain'",
        "UPDATE queue_items SET position = 7",
        "UPDATE queue_items SET request_id = gen_random_uuid()",
        "UPDATE agent_queues SET phase = 'uncertain', ready_at = NULL",
        "UPDATE agent_queues SET ready_at = NULL",
        "UPDATE agent_queues SET paused = true, ready_at = NULL",
        "UPDATE agent_queues SET phase = 'claimed', ready_at = NULL",
        "UPDATE agent_queues SET open = array_fill(open[1], ARRAY[21])",
    ] {
        let error = sqlx::query(sql).execute(&mut root).await.expect_err(sql);
        let code = error
            .as_database_error()
            .and_then(|e| e.code())
            .unwrap_or_default()
            .into_owned();
        assert_eq!(code, "23514", "{sql}: {error}");
    }
    home.assert_sound().await;
}
