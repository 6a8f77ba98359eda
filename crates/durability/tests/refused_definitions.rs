//! Definitions for which the log has no room: whoever asked is told, and everything is as it was, in the engine and
//! after a crash.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use eris_engine::{
    Definition, Engine, EngineError, ForeignKeySpec, KeySide, LogError, ReferentialAction, SequenceError, SequenceId,
    SequenceSpec,
};
use eris_platform::{Files, SimulatedEnv};
use eris_storage::{AttributeId, ContainerId};
use shelf::{PATH, TABLE, create_other, open_or_panic, row};

/// Children, whose keys refer to those of [`TABLE`].
const CHILDREN: ContainerId = ContainerId(3);
const SEQUENCES: u32 = 200;
const NAME: &str = "children_parents";

fn spec() -> ForeignKeySpec {
    let side = |container, name: &str| KeySide { container, name: name.into(), attributes: Box::new([AttributeId(0)]) };
    ForeignKeySpec {
        name: NAME.into(),
        child: side(CHILDREN, "children"),
        parent: side(TABLE, "parents"),
        on_delete: ReferentialAction::NoAction,
        on_update: ReferentialAction::NoAction,
    }
}

fn is_full<T>(outcome: &Result<T, EngineError>) -> bool {
    matches!(
        outcome,
        Err(EngineError::Log(LogError::Full { .. }) | EngineError::Sequence(SequenceError::Log(LogError::Full { .. })))
    )
}

fn sequences(engine: &Engine) -> usize {
    engine.definitions().iter().filter(|definition| matches!(definition, Definition::Sequence(..))).count()
}

/// As often as the log is too slow with its next file.
async fn until_there_is_room<T>(
    engine: &Engine,
    mut define: impl FnMut() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    loop {
        match define() {
            outcome if is_full(&outcome) => {
                engine.sleep_until(engine.env().now() + std::time::Duration::from_millis(100)).await;
            }
            outcome => return outcome,
        }
    }
}

#[test]
fn what_a_full_log_refuses_to_drop_or_make_is_as_it_was() {
    let env = SimulatedEnv::new(5);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    let engine = shelf.engine();
    let making = async move {
        until_there_is_room(&engine, || create_other(&engine)).await?;
        engine.create_foreign_key(&spec()).await?;
        for number in 0..SEQUENCES {
            let spec = SequenceSpec::new(&format!("s{number}"));
            until_there_is_room(&engine, || engine.create_sequence(&spec)).await?;
        }
        engine.sync_log().await
    };
    shelf.simulation.block_on(making).expect("ends").expect("there is room");
    let files = env.simulated_files();
    files.set_capacity(Some((1 << 40) - files.available_bytes(PATH.as_ref()).expect("a disk")));
    let engine = shelf.engine();
    // The shortest definition that there is fills the log.
    let refused = (1..=SEQUENCES).map(SequenceId).find(|id| is_full(&engine.drop_sequence(*id).map_err(Into::into)));
    let refused = refused.expect("the log has an end");
    assert!(engine.sequence(refused).is_some());
    let left = sequences(&engine);
    assert!(is_full(&engine.create_sequence(&SequenceSpec::new("one_more"))));
    assert_eq!(sequences(&engine), left);
    assert!(is_full(&engine.drop_foreign_key(CHILDREN, NAME)));
    assert_eq!(engine.foreign_keys(CHILDREN).expect("it is there"), [spec()]);
    assert!(is_full(&engine.drop_container(CHILDREN)));
    assert!(engine.container(CHILDREN).is_some());
    let orphan = engine.clone();
    let orphan = async move { orphan.begin().insert(CHILDREN, row(7, "")).await };
    let outcome = shelf.simulation.block_on(orphan).expect("ends");
    assert!(matches!(outcome, Err(EngineError::ForeignKeyViolation(_))), "{outcome:?}");
    // With room, all of it succeeds.
    files.set_capacity(None);
    let dropping = async move {
        until_there_is_room(&engine, || engine.drop_foreign_key(CHILDREN, NAME)).await?;
        until_there_is_room(&engine, || engine.drop_container(CHILDREN)).await?;
        until_there_is_room(&engine, || Ok(engine.drop_sequence(refused)?)).await
    };
    shelf.simulation.block_on(dropping).expect("ends").expect("there is room again");
    shelf.close();
    let shelf = open_or_panic(&env);
    assert!(shelf.engine().container(CHILDREN).is_none() && shelf.engine().container(TABLE).is_some());
    assert_eq!(sequences(&shelf.engine()), left - 1);
}
