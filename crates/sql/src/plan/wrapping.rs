//! Functions of DataFusion's of which some part is done otherwise: the rest they leave to the function inside.

/// What a `ScalarUDFImpl` with a field `inner` says of itself as that function does.
macro_rules! says_as_inner {
    () => {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn signature(&self) -> &datafusion::logical_expr::Signature {
            self.inner.signature()
        }

        fn coerce_types(
            &self,
            types: &[datafusion::arrow::datatypes::DataType],
        ) -> datafusion::common::Result<Vec<datafusion::arrow::datatypes::DataType>> {
            self.inner.coerce_types(types)
        }

        fn return_type(
            &self,
            types: &[datafusion::arrow::datatypes::DataType],
        ) -> datafusion::common::Result<datafusion::arrow::datatypes::DataType> {
            self.inner.return_type(types)
        }

        fn is_strict(&self) -> bool {
            self.inner.is_strict()
        }
    };
}

pub(super) use says_as_inner;
