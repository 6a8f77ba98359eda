//! `COPY FROM STDIN`: the messages between `CopyInResponse` and the end of the data.

use std::pin::pin;

use crate::protocol::backend::CopySink;
use crate::protocol::frontend::{self, Kind};
use crate::protocol::report::Report;
use crate::protocol::wire::{Failure, Stop, Transport, Wire};

/// Takes the data and returns the command tag. An early end of any kind undoes the statement before the client hears
/// of it; what the client sends for it afterwards is skipped by the message loop.
pub async fn copy_in<T: Transport, C: CopySink>(wire: &mut Wire<T>, mut sink: C) -> Result<String, Failure> {
    wire.reply.copy_in(sink.columns());
    match take_data(wire, &mut sink).await {
        Ok(End::Done) => Ok(wire.watch(pin!(sink.finish())).await?),
        Ok(End::GivenUp(reason)) => Err(sink.fail(&reason).await.into()),
        Err(failure) => {
            sink.fail("it was ended early").await;
            Err(failure)
        }
    }
}

/// How the client ended its data.
enum End {
    Done,
    /// For this reason.
    GivenUp(String),
}

async fn take_data<T: Transport, C: CopySink>(wire: &mut Wire<T>, sink: &mut C) -> Result<End, Failure> {
    wire.flush().await?;
    loop {
        let frame = wire.frame().await?;
        match frame.kind {
            Kind::CopyData => {
                let result = sink.data(wire.frames.body(&frame)).await;
                wire.frames.release(&frame);
                result?;
            }
            Kind::CopyDone => {
                wire.frames.release(&frame);
                return Ok(End::Done);
            }
            Kind::CopyFail => {
                let reason = frontend::copy_fail(wire.frames.body(&frame)).map(str::to_owned);
                wire.frames.release(&frame);
                return Ok(End::GivenUp(reason?));
            }
            // Clients that do not know yet that this is a COPY send these behind the Execute.
            Kind::Flush | Kind::Sync => wire.frames.release(&frame),
            Kind::Terminate => return Err(Stop::Gone.into()),
            Kind::Query
            | Kind::Parse
            | Kind::Bind
            | Kind::Describe
            | Kind::Execute
            | Kind::Close
            | Kind::FunctionCall => {
                wire.frames.release(&frame);
                return Err(
                    Report::protocol(format!("unexpected message {:?} during COPY from stdin", frame.kind)).into()
                );
            }
        }
    }
}
