// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "farandole/farandole.hpp"
#include "frontend/context_state.hpp"

namespace farandole {
namespace {

/// False if the operation is still running after `give_up`; the error if it failed.
Result<bool> wait_until(Operation& operation, ContextState& context, Deadline give_up) {
  if (!operation.finished() && !context.environment.origin.here())
    return context.environment.origin.error("wait");
  if (!operation.finished() && !context.fabric.engine->wait(operation, Ticks::now(), give_up)) {
    return false;
  }
  if (!operation.outcome()) return operation.outcome().error();
  return true;
}

}  // namespace

Result<void> Request::wait() {
  auto ended = wait_until(*operation_, *context_, Deadline::never());
  return ended ? Result<void>() : ended.error();
}

Result<bool> Request::wait_for(std::chrono::milliseconds timeout) {
  return wait_until(*operation_, *context_, Deadline::after(timeout));
}

Result<bool> Request::test() {
  if (!operation_->finished()) {
    if (!context_->environment.origin.here()) return context_->environment.origin.error("test");
    return false;
  }
  if (!operation_->outcome()) return operation_->outcome().error();
  return true;
}

Result<void> Request::on_complete(std::function<void(const Result<void>&)> told) {
  if (!context_->environment.origin.here())
    return context_->environment.origin.error("on_complete");
  if (!told) {
    return Error{ErrorKind::kInvalidArgument,
                 "on_complete: argument 'told' is empty, allowed is a function."};
  }
  operation_->on_complete(std::move(told));
  return {};
}

void Request::abort(const std::string& why) {
  if (!context_->environment.origin.here()) return;
  context_->fabric.engine->abort(Error{ErrorKind::kInternal, why});
}

}  // namespace farandole
