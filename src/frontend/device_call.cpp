// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/device_call.hpp"

#include <algorithm>
#include <thread>

#include "device/registry.hpp"

namespace farandole {
namespace {

using Rows = HostTransfer::Rows;
using Part = HostTransfer::Part;
using Piece = HostTransfer::Piece;

// A call is cut so that copies to the host, messages and copies back go on at the same time; each
// piece costs the host some microseconds.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kPiecesMax = 8;

/// A part of a call: these elements of the vector, or of each rank's chunk.
struct Cut {
  std::size_t first, count;
};

/// The same on all ranks.
std::vector<Cut> cuts_of(const Arguments& call, int size) {
  const std::size_t count = call.count.value();
  if (call.by_rank || call.collective == Collective::kBarrier) return {{0, count}};
  const bool by_rank = call.collective != Collective::kAllreduce &&
                       call.collective != Collective::kReduce &&
                       call.collective != Collective::kBroadcast;
  const std::size_t chunks = by_rank ? static_cast<std::size_t>(size) : 1;
  const std::size_t bytes = count * chunks * size_of(call.dtype).value();
  const std::size_t pieces =
      std::clamp<std::size_t>(std::min(bytes / kPieceBytes, count), 1, kPiecesMax);
  std::vector<Cut> cuts;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::size_t first = count * piece / pieces;
    cuts.push_back({first, count * (piece + 1) / pieces - first});
  }
  return cuts;
}

/// Where a piece's buffers lie in its staging memory, in bytes.
struct Staging {
  std::size_t in_at = 0, out_at = 0, bytes = 0;
};

Staging staging_of(const Arguments& piece, const Extent& extents) {
  const std::size_t element = size_of(piece.dtype).value();
  const std::size_t in = extents.in.value() * element;
  const std::size_t out = std::max(extents.out, extents.written).value() * element;
  if (piece.collective == Collective::kAlltoall) {
    return {.in_at = 0, .out_at = in, .bytes = in + out};
  }
  Staging staging{.bytes = std::max(in, out)};
  if (in == 0 || out == 0) return staging;
  const std::size_t own = extents.in_place_offset.value() * element;
  (in < out ? staging.in_at : staging.out_at) = own;
  return staging;
}

/// The part of a buffer that a cut means: `elements` is the buffer's length in the piece.
Rows rows_of(const void* buffer, const Cut& cut, Count whole, Count elements, DType dtype) {
  const std::size_t element = size_of(dtype).value();
  auto* const data = static_cast<std::byte*>(const_cast<void*>(buffer)) + cut.first * element;
  if (elements.value() == 0) return {data, 0};
  if (cut.count == whole.value()) return {data, elements.value() * element};
  return {data, cut.count * element, elements.value() / cut.count, whole.value() * element};
}

/// Held by a call, so that shutdown() on another thread waits for it.
Result<std::shared_ptr<HostTransfer>> transfer_of(ContextState& context,
                                                  const std::shared_ptr<StreamDevice>& device) {
  const std::lock_guard lock(context.fabric.transfers_mutex);
  auto& transfer = context.fabric.transfers[device];
  if (transfer == nullptr) {
    auto made = device->make_host_transfer(context.fabric.memory);
    if (!made) return made.error();
    transfer = *std::move(made);
  }
  return transfer;
}

std::string memory_of(const std::shared_ptr<StreamDevice>& device) {
  return device == nullptr ? "memory of the host" : "memory of " + std::string(device->name());
}

bool breaks_communicator(const Error& error) {
  return error.kind == ErrorKind::kRankFailed || error.kind == ErrorKind::kTimedOut;
}

/// Messages begin at lines of the cache.
std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  return (bytes + kLine - 1) / kLine * kLine;
}

/// Calls that the other ranks number, and that this rank cannot make, get a number here as well.
void excuse(CommunicatorState& state, std::size_t calls, const Error& error) {
  for (std::size_t i = 0; i < calls; ++i) {
    state.context->fabric.engine->excuse(*state.group, state.next_sequence.fetch_add(1), error);
  }
}

/// Makes one call: its pieces go out, become operations, and come back.
class DeviceCall {
 public:
  DeviceCall(const Call& call, const std::shared_ptr<CommunicatorState>& state,
             HostTransfer::Pass& pass, std::vector<Cut> cuts)
      : call_(call), state_(state), pass_(pass), cuts_(std::move(cuts)) {}

  Result<void> run(std::size_t pieces_at_once) {
    Result<void> outcome;
    std::size_t i = 0;
    for (; i < cuts_.size() && outcome; ++i) {
      if (i >= pieces_at_once) outcome = bring_back(i - pieces_at_once);
      if (outcome) outcome = bring_out(cuts_[i]);
    }
    if (!outcome) excuse(*state_, cuts_.size() - i, outcome.error());
    // Also after an error: what went out before has to come back.
    while (back_ < pieces_.size()) {
      if (auto done = bring_back(back_); !done && outcome) outcome = done;
    }
    return outcome;
  }
  std::vector<Request> take_requests() { return std::move(requests_); }

 private:
  /// The call for these elements alone.
  Arguments part(const Cut& cut) const {
    Arguments part = call_.arguments;
    if (!part.by_rank) part.count = Count{cut.count};
    return part;
  }

  Result<void> bring_out(const Cut& cut) {
    Arguments arguments = part(cut);
    const Extent extents = extent(arguments, *state_->group);
    const Staging staging = staging_of(arguments, extents);
    const Part in[] = {
        {rows_of(call_.arguments.in, cut, call_.arguments.count, extents.in, arguments.dtype),
         staging.in_at}};
    auto piece = pass_.bring_out(in, staging.bytes);
    if (!piece) {
      excuse(*state_, 1, piece.error());
      return piece.error();
    }
    pieces_.push_back(*piece);
    const auto placed = [&](const void* buffer, std::size_t at) -> std::byte* {
      return buffer == nullptr ? nullptr : piece->staging + at;
    };
    arguments.in = placed(arguments.in, staging.in_at);
    arguments.out = placed(arguments.out, staging.out_at);
    CallOptions options = call_.options;
    options.gate = piece->gate;
    options.background = true;
    auto started = Communicator(state_).start(arguments, options);
    if (!started) {
      piece->gate.leave();
      return started.error();
    }
    requests_.push_back(*std::move(started));
    return {};
  }

  Result<void> bring_back(std::size_t i) {
    back_ = i + 1;
    const Arguments arguments = part(cuts_[i]);
    const Extent extents = extent(arguments, *state_->group);
    const Part out[] = {{rows_of(call_.arguments.out, cuts_[i], call_.arguments.count, extents.out,
                                 arguments.dtype),
                         staging_of(arguments, extents).out_at}};
    return pass_.bring_back(pieces_[i], out);
  }

  const Call& call_;
  const std::shared_ptr<CommunicatorState>& state_;
  HostTransfer::Pass& pass_;
  const std::vector<Cut> cuts_;
  std::vector<Piece> pieces_;
  std::size_t back_ = 0;  // of pieces_, how many came back
  std::vector<Request> requests_;
};

}  // namespace

CommunicatorState::CommunicatorState() : late_errors(std::make_shared<LateErrors>()) {}

void LateErrors::set(const void* call, const Error& error) {
  const std::lock_guard lock(mutex_);
  if (breaks_communicator(error)) lasting_ = error;
  if (first_) return;
  first_ = error;
  call_ = call;
}

std::optional<Error> LateErrors::take() {
  const std::lock_guard lock(mutex_);
  return lasting_ ? lasting_ : std::exchange(first_, std::nullopt);
}

void LateErrors::forget(const void* call) {
  const std::lock_guard lock(mutex_);
  if (call_ == call) first_.reset();
}

Result<std::shared_ptr<StreamDevice>> stream_device_of(const Call& call, const Group& group) {
  const Arguments& arguments = call.arguments;
  const Extent extents = extent(arguments, group);
  const auto owner = [](const void* buffer, Count count) {
    return count.value() > 0 ? DeviceRegistry::instance().stream_device_of(buffer) : nullptr;
  };
  auto in = owner(arguments.in, extents.in), out = owner(arguments.out, extents.out);
  if (in == out || extents.in.value() == 0 || extents.out.value() == 0) {
    return in == nullptr ? out : in;
  }
  return bad_argument(name(arguments.collective), "out", memory_of(out),
                      memory_of(in) + ", where 'in' lies");
}

Result<std::shared_ptr<DeviceRun>> start_on_device(const Call& call,
                                                   const std::shared_ptr<CommunicatorState>& state,
                                                   const std::shared_ptr<StreamDevice>& device,
                                                   bool blocks) {
  if (!is_open(*state)) return closed_error(*state, name(call.arguments.collective));
  if (auto valid = check_call(call, *state->group); !valid) return valid.error();
  if (auto late = state->late_errors->take()) return *std::move(late);
  std::vector<Cut> cuts = cuts_of(call.arguments, state->group->size());
  const std::size_t pieces = cuts.size();
  auto transfer = transfer_of(*state->context, device);
  if (!transfer) {
    excuse(*state, pieces, transfer.error());
    return transfer.error();
  }
  const Extent extents = extent(call.arguments, *state->group);
  const std::size_t bytes = staging_of(call.arguments, extents).bytes;
  auto pass = (*transfer)->begin(call.options.stream, blocks, bytes, pieces);
  if (!pass) return pass.error();
  DeviceCall run(call, state, **pass, std::move(cuts));
  Result<void> outcome = run.run((*transfer)->pieces_at_once(bytes / pieces));
  auto end = (*pass)->end();
  if (!outcome) return outcome.error();
  if (!end) return end.error();
  return DeviceRun::create(run.take_requests(), *std::move(end), state->late_errors);
}

Result<std::shared_ptr<StreamDevice>> stream_device_of(std::span<const Message> messages) {
  std::shared_ptr<StreamDevice> device;
  const Message* first = nullptr;
  for (const Message& message : messages) {
    if (message.count.value() == 0) continue;
    auto owner = DeviceRegistry::instance().stream_device_of(message.data);
    if (first != nullptr && owner != device) {
      return bad_argument("batch", "data", memory_of(owner),
                          memory_of(device) + ", where the first message lies");
    }
    first = &message;
    device = std::move(owner);
  }
  return device;
}

Result<std::shared_ptr<DeviceRun>> start_on_device(std::span<const Message> messages,
                                                   const CallOptions& options,
                                                   const std::shared_ptr<CommunicatorState>& state,
                                                   const std::shared_ptr<StreamDevice>& device,
                                                   bool blocks) {
  if (auto late = state->late_errors->take()) return *std::move(late);
  auto transfer = transfer_of(*state->context, device);
  if (!transfer) return transfer.error();
  std::vector<Part> out, back;
  std::size_t bytes = 0;
  for (const Message& message : messages) {
    const std::size_t length = (message.count * size_of(message.dtype)).value();
    auto& parts = message.kind == Message::Kind::kSend ? out : back;
    parts.push_back({{static_cast<std::byte*>(message.data), length}, bytes});
    bytes += aligned(length);
  }
  auto pass = (*transfer)->begin(options.stream, blocks, bytes, 1);
  if (!pass) return pass.error();
  auto piece = (*pass)->bring_out(out, bytes);
  if (!piece) {
    // The peers number messages that this rank cannot exchange, and nobody could tell them.
    static_cast<void>(Communicator(state).abort(piece.error().message));
    return piece.error();
  }
  std::vector<Message> placed(messages.begin(), messages.end());
  bytes = 0;
  for (Message& message : placed) {
    message.data = piece->staging + bytes;
    bytes += aligned((message.count * size_of(message.dtype)).value());
  }
  CallOptions gated = options;
  gated.gate = piece->gate;
  gated.background = true;
  auto started = Communicator(state).start(std::span<const Message>(placed), gated);
  if (!started) piece->gate.leave();
  auto came =
      (*pass)->bring_back(*piece, started ? std::span<const Part>(back) : std::span<const Part>());
  auto end = (*pass)->end();
  if (!started) return started.error();
  if (!came) return came.error();
  if (!end) return end.error();
  return DeviceRun::create({*std::move(started)}, *std::move(end), state->late_errors);
}

std::shared_ptr<DeviceRun> DeviceRun::create(std::vector<Request> pieces,
                                             std::shared_ptr<DeviceEnd> end,
                                             std::shared_ptr<LateErrors> errors) {
  std::shared_ptr<DeviceRun> run(new DeviceRun(std::move(pieces), std::move(end), errors));
  for (Request& piece : run->pieces_) {
    // Fails in no other way than that this process was forked, in which nothing is late.
    static_cast<void>(piece.on_complete(
        [errors, call = static_cast<const void*>(run.get())](const Result<void>& ended) {
          if (!ended) errors->set(call, ended.error());
        }));
  }
  return run;
}

Result<void> DeviceRun::outcome() {
  for (Request& piece : pieces_) {
    if (auto ended = piece.wait(); !ended) {
      errors_->forget(this);
      return ended;
    }
  }
  return {};
}

Result<void> DeviceRun::wait() {
  auto come = end_->synchronize();
  auto ended = outcome();
  return ended ? come : ended;
}

Result<bool> DeviceRun::test() {
  auto come = end_->test();
  if (!come || !*come) return come;
  if (auto ended = outcome(); !ended) return ended.error();
  return true;
}

Result<bool> DeviceRun::wait_for(std::chrono::milliseconds timeout) {
  const Deadline give_up = Deadline::after(timeout);
  for (;;) {
    auto ended = test();
    if (!ended || *ended || give_up.passed()) return ended;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Result<void> DeviceRun::order(void* stream) {
  return end_->order(stream);
}

void DeviceRun::abort(const std::string& why) {
  if (!pieces_.empty()) pieces_.front().abort(why);
}

Result<void> DeviceRun::on_complete(std::function<void(const Result<void>&)> told) {
  struct Shared {
    std::size_t left;
    std::function<void(const Result<void>&)> told;
    std::mutex mutex;
    Result<void> first;
  };
  const auto shared = std::shared_ptr<Shared>(new Shared{pieces_.size(), std::move(told), {}, {}});
  for (Request& piece : pieces_) {
    auto done = piece.on_complete([shared](const Result<void>& ended) {
      {
        const std::lock_guard lock(shared->mutex);
        if (!ended && shared->first) shared->first = ended;
        if (--shared->left > 0) return;
      }
      shared->told(shared->first);
    });
    if (!done) return done;
  }
  return {};
}

}  // namespace farandole
