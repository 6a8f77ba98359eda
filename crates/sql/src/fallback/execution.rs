//! One execution of a fallback plan: the pins its scans read.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use eris_engine::{CancelHandle, PinnedScan, SnapshotHandle, Transaction};

use super::scan::SegmentScan;
use crate::errors::SqlError;
use crate::plan::{ScanTarget, TableSourceProvider, datafusion_error, engine_error};

/// Pinned data by scan, and the snapshot to read it under.
pub struct FallbackExecution {
    pins: Vec<(ScanTarget, Arc<PinnedScan>)>,
    snapshot: Arc<SnapshotHandle>,
    cancel: CancelHandle,
    partitions: usize,
}

impl fmt::Debug for FallbackExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FallbackExecution({} pins)", self.pins.len())
    }
}

/// The scans of our tables anywhere in a plan, subqueries included, each different one once.
pub fn scans_of(plan: &LogicalPlan) -> std::result::Result<Vec<ScanTarget>, SqlError> {
    let mut targets: Vec<ScanTarget> = Vec::new();
    eris_binder::visit_scans(plan, &mut |scan| {
        let provider = source_as_provider(&scan.source)?;
        if let Some(source) = provider.downcast_ref::<TableSourceProvider>() {
            let target = ScanTarget::new(source.table(), scan.projection.as_deref(), &unqualified(&scan.filters)?)
                .map_err(|error| DataFusionError::External(Box::new(error)))?;
            if !targets.iter().any(|known| known.same(&target)) {
                targets.push(target);
            }
        }
        Ok(())
    })
    .map_err(|error| datafusion_error(&error))?;
    Ok(targets)
}

/// Filters as the physical planner hands them to a table.
fn unqualified(filters: &[datafusion::logical_expr::Expr]) -> Result<Vec<datafusion::logical_expr::Expr>> {
    Ok(datafusion::logical_expr::expr_rewriter::unnormalize_cols(filters.to_vec()))
}

impl FallbackExecution {
    /// Pins everything that the plan reads.
    pub async fn pin(
        plan: &LogicalPlan,
        transaction: &mut Transaction,
        partitions: usize,
    ) -> std::result::Result<Self, SqlError> {
        let mut pins = Vec::new();
        for target in scans_of(plan)? {
            let pinned = if target.nothing {
                PinnedScan { segments: Vec::new(), open: Vec::new() }
            } else {
                transaction
                    .pin(target.table.container(), &target.request)
                    .await
                    .map_err(|error| engine_error(&error, Some(&target.table)))?
            };
            pins.push((target, Arc::new(pinned)));
        }
        Ok(Self { pins, snapshot: transaction.snapshot_handle(), cancel: transaction.cancel_handle(), partitions })
    }

    /// The scan of a target that was pinned.
    pub fn scan(&self, target: ScanTarget) -> Result<Arc<dyn ExecutionPlan>> {
        let pinned = self
            .pins
            .iter()
            .find(|(known, _)| known.same(&target))
            .map(|(_, pinned)| Arc::clone(pinned))
            .ok_or_else(|| DataFusionError::Internal(format!("table {} was not pinned", target.table.name)))?;
        Ok(Arc::new(SegmentScan::new(
            target,
            &pinned,
            Arc::clone(&self.snapshot),
            self.cancel.clone(),
            self.partitions,
        )?))
    }
}
