// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordination/executor.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>
#include <utility>

#include "coordination/adasum.hpp"
#include "coordination/neutral.hpp"
#include "coordination/rows.hpp"
#include "device/cpu/copy.hpp"
#include "reduce/reduce.hpp"

namespace farandole {
namespace {

using coordinator::Ready;

// An operation of up to this size ends sooner than another thread could wake up for it.
constexpr std::size_t kInlineBytesMax = 64 * 1024;

std::string title(const std::vector<Ready>& members) {
  std::string name = members.front().response.request->name;
  if (members.size() == 1) return name;
  return name + " and " + std::to_string(members.size() - 1) + " more";
}

}  // namespace

Executor::Executor(Context& context, std::shared_ptr<ContextState> process,
                   Communicator communicator, std::size_t flights_max,
                   std::function<void(SubmissionState&)> done)
    : context_(context),
      process_(std::move(process)),
      communicator_(std::move(communicator)),
      flights_max_(flights_max),
      done_(std::move(done)) {
  if (flights_max_ > 1) thread_ = std::thread([this] { end_flights(); });
}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Executor::start(coordinator::Batch batch, std::vector<SharedSubmission> tasks, int size_shift,
                     bool last) {
  Flight flight;
  flight.size_shift = size_shift;
  flight.members = std::move(batch.members);
  flight.tasks = std::move(tasks);
  flight.name = title(flight.members);
  flight.ready = Clock::now();
  const coordinator::Response& response = flight.members.front().response;
  if (!response.error.empty()) {
    finish(flight, Error{response.kind, response.error});
    return;
  }
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return flights_.size() < flights_max_; });
    ++counts_.batches;
    counts_.tensors += flight.members.size();
  }
  if (auto launched = launch(flight); !launched) {
    finish(flight, launched.error());
    return;
  }
  if (!flight.request) {
    finish(flight, {});
    return;
  }
  const bool small = (flight.count * size_of(flight.terms().dtype)).value() <= kInlineBytesMax;
  std::unique_lock lock(mutex_);
  if (flights_max_ == 1 || (last && small && flights_.empty())) {
    lock.unlock();
    finish(flight, flight.request->wait());
    return;
  }
  flights_.push_back(std::move(flight));
  lock.unlock();
  changed_.notify_all();
}

void Executor::end_flights() {
  for (;;) {
    Flight* flight = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !flights_.empty(); });
      if (flights_.empty()) return;
      flight = &flights_.front();
    }
    finish(*flight, flight->request->wait());
    {
      const std::lock_guard lock(mutex_);
      flights_.pop_front();
    }
    changed_.notify_all();
  }
}

void Executor::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return flights_.empty(); });
}

Executor::Counts Executor::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Result<void> Executor::take_buffer(Flight& flight, Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::ranges::find_if(spares_, [&](const auto& spare) {
      return spare.first >= size.value() && spare.first / 4 <= size.value();
    });
    if (fits != spares_.end()) {
      std::tie(flight.buffer_bytes, flight.buffer) = std::move(*fits);
      spares_.erase(fits);
      return {};
    }
  }
  flight.buffer_bytes = std::bit_ceil(std::max(size.value(), std::size_t{4096}));
  auto made = allocate_anywhere(process_->fabric.memory, Bytes{flight.buffer_bytes});
  if (!made) return made.error();
  flight.buffer = *std::move(made);
  return {};
}

void Executor::give_back(Flight& flight) {
  if (!flight.buffer) return;
  const std::lock_guard lock(mutex_);
  if (spares_.size() == flights_max_) spares_.erase(spares_.begin());
  spares_.emplace_back(flight.buffer_bytes, std::move(flight.buffer));
}

Result<void> Executor::launch(Flight& flight) {
  flight.choose_arithmetic(communicator_.size());
  switch (flight.terms().collective) {
    case Collective::kAllreduce:
      return flight.terms().adasum ? launch_adasum(flight) : launch_allreduce(flight);
    case Collective::kBroadcast:
      return launch_broadcast(flight);
    case Collective::kReducescatter:
      return launch_reducescatter(flight);
    case Collective::kAllgather:
      return launch_allgather(flight);
    case Collective::kAlltoall:
      return launch_alltoall(flight);
    default:
      return run(flight, {.collective = Collective::kBarrier});
  }
}

Result<void> Executor::run(Flight& flight, Arguments arguments) {
  const coordinator::TensorRequest& terms = flight.terms();
  arguments.collective = terms.collective;
  arguments.dtype = flight.wide_length > 0 ? DType::kInt64 : terms.dtype;
  arguments.reduction = flight.reduction;
  arguments.root = Rank{terms.root};
  arguments.count = flight.moved(arguments.count);
  flight.started = Clock::now();
  auto request = communicator_.start(
      arguments,
      {.name = flight.name, .background = flights_max_ > 1, .size_shift = flight.size_shift});
  if (!request) return request.error();
  flight.request = *std::move(request);
  return {};
}

/// Gives the batch contiguous memory, with this rank's tensors or the neutral element in it.
Result<void> Executor::pack(Flight& flight) {
  const coordinator::TensorRequest& terms = flight.terms();
  for (const Ready& member : flight.members) {
    flight.count += Count{element_count(member.response.request->shape)};
  }
  const bool several = flight.members.size() > 1;
  const Bytes size = flight.count * flight.element_size();
  const bool wide = flight.wide_length > 0;
  std::byte* in_place = wide ? nullptr : flight.in_place_in_order();
  if (several) {
    const std::lock_guard lock(mutex_);
    counts_.fused_bytes += size.value();
    if (in_place != nullptr) ++counts_.without_copy;
  }
  if (in_place != nullptr) {
    flight.bring(in_place, in_place, flight.count);
    flight.in = flight.out = in_place;
    return {};
  }
  if (const SharedSubmission& only = flight.tasks.front(); only && !several && !wide) {
    flight.in = static_cast<const std::byte*>(only->call.in);
    flight.out = static_cast<std::byte*>(only->call.out);
    if (terms.prescale == 1.0) return {};
    flight.bring(flight.out, flight.in, flight.count);
    flight.in = flight.out;
    return {};
  }
  flight.unpack = true;
  flight.packed = Clock::now();
  return pack_into_buffer(flight);
}

Result<void> Executor::pack_into_buffer(Flight& flight) {
  const coordinator::TensorRequest& terms = flight.terms();
  auto taken = take_buffer(flight, flight.count * flight.element_size());
  if (!taken) return taken;
  flight.in = flight.out = flight.buffer.get();
  std::byte* at = flight.out;
  for (std::size_t i = 0; i < flight.members.size(); ++i) {
    const Count count{element_count(flight.members[i].response.request->shape)};
    if (flight.tasks[i]) {
      flight.bring(at, flight.tasks[i]->call.in, count);
    } else if (flight.wide_length > 0) {
      fill_neutral(at, flight.moved(count), DType::kInt64, Reduction::kSum);
    } else {
      fill_neutral(at, count, terms.dtype, terms.reduction);
    }
    at += (count * flight.element_size()).value();
  }
  return {};
}

Result<void> Executor::launch_allreduce(Flight& flight) {
  if (auto packed = pack(flight); !packed) return packed;
  return run(flight, {.in = flight.in, .out = flight.out, .count = flight.count});
}

Result<void> Executor::launch_adasum(Flight& flight) {
  if (auto packed = pack(flight); !packed) return packed;
  flight.started = Clock::now();
  const Bytes size = flight.count * size_of(flight.terms().dtype);
  if (flight.in != flight.out) copy_bytes(flight.out, flight.in, size.value());
  if (flight.terms().dtype == DType::kFloat32) {
    auto* values = reinterpret_cast<float*>(flight.out);
    return adasum(communicator_, {values, flight.count.value()}, flight.name);
  }
  auto* values = reinterpret_cast<double*>(flight.out);
  return adasum(communicator_, {values, flight.count.value()}, flight.name);
}

Result<void> Executor::launch_broadcast(Flight& flight) {
  const coordinator::TensorRequest& terms = flight.terms();
  flight.count = Count{element_count(terms.shape)};
  if (const SharedSubmission& task = flight.tasks.front(); task) {
    return run(flight, {.in = task->call.in, .out = task->call.out, .count = flight.count});
  }
  auto taken = take_buffer(flight, flight.count * size_of(terms.dtype));
  if (!taken) return taken;
  return run(flight, {.out = flight.buffer.get(), .count = flight.count});
}

Result<void> Executor::launch_reducescatter(Flight& flight) {
  const coordinator::TensorRequest& terms = flight.terms();
  const auto self = static_cast<std::size_t>(communicator_.rank().value());
  const auto parts = even_parts(row_count(terms.shape), communicator_.size());
  const std::size_t row = row_length(terms.shape);
  const auto counts = elements(parts, row * std::max<std::size_t>(1, flight.wide_length));
  const SharedSubmission& task = flight.tasks.front();
  if (!task || flight.wide_length > 0 || terms.prescale != 1.0) {
    flight.count = Count{element_count(terms.shape)};
    if (auto packed = pack_into_buffer(flight); !packed) return packed;
  } else {
    flight.in = static_cast<const std::byte*>(task->call.in);
  }
  flight.count = Count{static_cast<std::size_t>(parts[self]) * row};
  auto made = make_result(flight, with_rows(terms.shape, parts[self]));
  if (!made) return made;
  if (flight.wide_length > 0) {  // in place
    const std::size_t before = std::accumulate(counts.begin(), counts.begin() + self, 0ULL);
    flight.out = flight.buffer.get() + (Count{before} * size_of(DType::kInt64)).value();
  }
  Arguments arguments{.in = flight.in, .out = flight.out, .count = flight.count};
  if (parts.front() != parts.back()) {
    arguments.by_rank = true;
    arguments.in_counts = counts;
  }
  return run(flight, arguments);
}

Result<void> Executor::launch_allgather(Flight& flight) {
  const std::vector<std::int64_t> shape = flight.own_shape();
  const std::int64_t own = row_count(shape);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(communicator_.size()));
  auto told =
      communicator_.allgather(&own, rows.data(), Count{1}, DType::kInt64, {.name = flight.name});
  if (!told) return told;
  const auto counts = elements(rows, row_length(shape));
  auto made = make_result(flight, with_rows(shape, total(rows)));
  if (!made) return made;
  const SharedSubmission& task = flight.tasks.front();
  if (task) task->rows = rows;
  flight.count = Count{counts[static_cast<std::size_t>(communicator_.rank().value())]};
  Arguments arguments{
      .in = task ? task->call.in : nullptr, .out = flight.out, .count = flight.count};
  if (!std::ranges::all_of(rows, [&](std::int64_t other) { return other == own; })) {
    arguments.by_rank = true;
    arguments.out_counts = counts;
  }
  return run(flight, arguments);
}

Result<void> Executor::launch_alltoall(Flight& flight) {
  const std::vector<std::int64_t> shape = flight.own_shape();
  const SharedSubmission& task = flight.tasks.front();
  std::vector<std::int64_t> sent = even_parts(row_count(shape), communicator_.size());
  if (task && !task->call.splits.empty()) sent = task->call.splits;
  std::vector<std::int64_t> received(sent.size());
  auto told = communicator_.alltoall(sent.data(), received.data(), Count{1}, DType::kInt64,
                                     {.name = flight.name});
  if (!told) return told;
  auto made = make_result(flight, with_rows(shape, total(received)));
  if (!made) return made;
  if (task) task->rows = received;
  const auto in_counts = elements(sent, row_length(shape));
  const auto out_counts = elements(received, row_length(shape));
  flight.count = Count{element_count(shape)};
  return run(flight, {.in = task ? task->call.in : nullptr,
                      .out = flight.out,
                      .by_rank = true,
                      .in_counts = in_counts,
                      .out_counts = out_counts});
}

/// Allocates memory for a result of this shape; the caller gets it if this rank asked.
Result<void> Executor::make_result(Flight& flight, std::vector<std::int64_t> shape) {
  auto made = context_.allocate(size_in_bytes(shape, flight.terms().dtype));
  if (!made) return made.error();
  flight.result = *std::move(made);
  flight.out = flight.result.get();
  if (flight.tasks.front()) flight.tasks.front()->shape = std::move(shape);
  return {};
}

void Executor::finish(Flight& flight, Result<void> outcome) {
  const Clock::time_point ended = Clock::now();
  if (outcome && reduces(flight.terms().collective)) flight.complete();
  give_back(flight);
  record(flight, ended, Clock::now());
  for (const SharedSubmission& task : flight.tasks) {
    if (!task) continue;
    if (outcome) task->data = flight.result;
    if (task->shape.empty()) task->shape = task->call.shape;
    done_(*task);
    task->finish(outcome);
  }
}

void Executor::record(const Flight& flight, Clock::time_point ended, Clock::time_point copied) {
  using coordinator::Phase;
  const auto timeline = process_->observability.timeline();
  if (!timeline) return;
  const bool ran = flight.started != Clock::time_point{};
  const Clock::time_point left = flight.unpack ? flight.packed : ran ? flight.started : ended;
  for (const SharedSubmission& task : flight.tasks) {
    if (!task) continue;
    const std::string& name = task->call.name;
    timeline->span(name, Phase::kQueued, task->submitted, task->drained);
    timeline->span(name, Phase::kNegotiating, task->drained, flight.ready);
    timeline->span(name, Phase::kWaitingForGroup, flight.ready, left);
    if (flight.unpack) timeline->span(name, Phase::kFusedCopyIn, flight.packed, flight.started);
    if (ran) timeline->span(name, Phase::kCollective, flight.started, ended, flight.name);
    if (flight.unpack) timeline->span(name, Phase::kFusedCopyOut, ended, copied);
    timeline->span(name, Phase::kDone, copied, copied);
  }
  if (flight.members.size() < 2) return;
  const Bytes size = flight.count * size_of(flight.terms().dtype);
  timeline->counter("fused bytes", static_cast<double>(size.value()), flight.ready);
}

}  // namespace farandole
