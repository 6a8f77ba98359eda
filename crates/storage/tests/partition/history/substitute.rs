//! Registries in which one module stands in for another, so that whole histories run on it whatever the layouts choose.

use eris_storage::{
    AccessPathFactory, COLUMN, COLUMN_GROUP, ENCODED, HASH_INDEX, INVERTED_INDEX, ORDERED_INDEX, PathConfiguration,
    PathInstance, Properties, ROW_DYNAMIC, ROW_SPARSE, ROW_STATIC, Registry,
};

/// Makes what `module` makes under another name.
struct Substitute {
    name: &'static str,
    module: &'static str,
}

impl Substitute {
    fn factory(&self) -> &'static dyn AccessPathFactory {
        Registry::standard().module(self.module).expect("a module of the standard registry")
    }
}

impl AccessPathFactory for Substitute {
    fn name(&self) -> &'static str {
        self.name
    }

    fn properties(&self) -> Properties {
        self.factory().properties()
    }

    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance {
        self.factory().create(configuration)
    }
}

static DYNAMIC_ROWS: Registry = Registry::new(&[
    &Substitute { name: ROW_STATIC, module: ROW_DYNAMIC },
    &Substitute { name: ROW_DYNAMIC, module: ROW_DYNAMIC },
    &Substitute { name: ROW_SPARSE, module: ROW_SPARSE },
    &Substitute { name: COLUMN, module: COLUMN },
    &Substitute { name: COLUMN_GROUP, module: COLUMN_GROUP },
    &Substitute { name: ENCODED, module: ENCODED },
    &Substitute { name: ORDERED_INDEX, module: ORDERED_INDEX },
    &Substitute { name: HASH_INDEX, module: HASH_INDEX },
    &Substitute { name: INVERTED_INDEX, module: INVERTED_INDEX },
]);

/// Rows are dynamic wherever static ones are asked for.
pub fn dynamic_rows() -> &'static Registry {
    &DYNAMIC_ROWS
}
