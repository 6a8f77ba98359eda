//! Samples of a scan: what its conditions keep, and what a filter above it keeps of that.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use eris_engine::SnapshotHandle;
use eris_storage::{Batch, PinnedSegment};

use super::scan::SegmentScan;
use crate::arrow_view::batch_to_arrow;
use crate::plan::ScanTarget;
use crate::statistics::sample_windows;

/// Rows of a scan that its conditions keep.
pub(super) struct Sample {
    /// Rows looked at.
    pub examined: usize,
    kept: Vec<Batch>,
}

impl Sample {
    /// Looks at some rows. A window that cannot be read is left out: its error belongs to the scan itself.
    pub fn take(target: &ScanTarget, segments: &[Arc<PinnedSegment>], snapshot: &SnapshotHandle) -> Self {
        let mut sample = Self { examined: 0, kept: Vec::new() };
        for (segment, window) in sample_windows(segments) {
            let examined = window.len();
            if let Ok(kept) = segment.scan_window(&snapshot.snapshot(), &target.request, window) {
                sample.examined += examined;
                sample.kept.extend(kept);
            }
        }
        sample
    }

    /// Rows kept.
    pub fn rows(&self) -> usize {
        self.kept.iter().map(|batch| batch.rows).sum()
    }

    /// How many rows of the sample a filter keeps; `None` if it fails on one of them.
    pub fn kept_by(&self, predicate: &dyn PhysicalExpr, schema: &SchemaRef) -> Option<usize> {
        let kept = |batch: &Batch| {
            let batch = batch_to_arrow(batch, Arc::clone(schema)).ok()?;
            let verdicts = predicate.evaluate(&batch).ok()?.into_array(batch.num_rows()).ok()?;
            let verdicts = verdicts.as_boolean_opt()?;
            Some(verdicts.iter().filter(|verdict| *verdict == Some(true)).count())
        };
        self.kept.iter().map(kept).sum()
    }
}

/// Tells a filter above one of our scans which share of its rows it keeps, in whole percent, before sides of joins are
/// chosen: otherwise a fifth is assumed of everything that bounds do not tell, `LIKE` above all.
#[derive(Debug)]
pub struct SampledFilters;

fn told(filter: &FilterExec) -> Option<Arc<dyn ExecutionPlan>> {
    let scan = filter.input().downcast_ref::<SegmentScan>()?;
    if is_volatile(filter.predicate()) {
        return None;
    }
    let sample = scan.sample();
    if sample.rows() == 0 {
        return None;
    }
    let kept = sample.kept_by(filter.predicate().as_ref(), &filter.input().schema())?;
    let percent = (100 * kept).div_ceil(sample.rows()).max(1);
    let told = FilterExecBuilder::from(filter).with_default_selectivity(percent as u8).build().ok()?;
    Some(Arc::new(told))
}

impl PhysicalOptimizerRule for SampledFilters {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let tell = |node: Arc<dyn ExecutionPlan>| {
            Ok(match node.downcast_ref::<FilterExec>().and_then(told) {
                Some(told) => Transformed::yes(told),
                None => Transformed::no(node),
            })
        };
        plan.transform_up(tell).data()
    }

    fn name(&self) -> &'static str {
        "sampled_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
