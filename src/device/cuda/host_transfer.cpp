// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/host_transfer.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/settings.hpp"

namespace farandole::cuda {
namespace {

// What the ring holds, beside the words.
constexpr std::size_t kRingBytes = std::size_t{32} << 20;

/// Library memory that the device reaches.
Result<std::shared_ptr<std::byte>> registered(std::shared_ptr<const Gpu> gpu,
                                              const std::shared_ptr<farandole::Memory>& memory,
                                              std::size_t bytes) {
  auto block = allocate_shared(memory, Bytes{bytes});
  if (!block) return block;
  const Status status = gpu->api().host_register(block->get(), bytes, kHostPortable | kHostMapped);
  if (auto done = gpu->driver().check(status, "cuMemHostRegister_v2"); !done) return done.error();
  std::byte* const data = block->get();
  return std::shared_ptr<std::byte>(
      data, [gpu = std::move(gpu), block = *std::move(block)](std::byte* registered) {
        const Gpu::Scope scope(*gpu);
        gpu->api().host_unregister(registered);
      });
}

Stream handle_of(void* stream) {
  return static_cast<Stream>(stream);
}

/// The end of a call: an event that lives as long as somebody may ask for it.
class EventEnd final : public DeviceEnd {
 public:
  EventEnd(std::shared_ptr<const Gpu> gpu, EventPool::Held event)
      : gpu_(std::move(gpu)), event_(std::move(event)) {}

  Result<void> order(void* stream) override {
    if (event_ == nullptr) return {};
    const Gpu::Scope scope(*gpu_);
    return gpu_->driver().check(gpu_->api().stream_wait_event(handle_of(stream), event_.get(), 0),
                                "cuStreamWaitEvent");
  }
  Result<void> synchronize() override {
    if (event_ == nullptr) return {};
    const Gpu::Scope scope(*gpu_);
    return gpu_->driver().check(gpu_->api().event_synchronize(event_.get()), "cuEventSynchronize");
  }
  Result<bool> test() override {
    if (event_ == nullptr) return true;
    const Gpu::Scope scope(*gpu_);
    const Status status = gpu_->api().event_query(event_.get());
    if (status == kNotReady) return false;
    if (auto done = gpu_->driver().check(status, "cuEventQuery"); !done) return done.error();
    return true;
  }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  const EventPool::Held event_;
};

}  // namespace

/// One call's work, all of it on the streams `out_` and `back_`, which may be the caller's.
class CudaHostTransfer::CallPass final : public Pass {
 public:
  CallPass(CudaHostTransfer& transfer, Stream caller, bool blocks, bool on_callers_stream)
      : transfer_(transfer),
        lock_(transfer.mutex_),
        scope_(*transfer.gpu_),
        caller_(caller),
        out_(on_callers_stream ? caller : transfer.out_.get()),
        back_(on_callers_stream ? caller : transfer.back_.get()),
        blocks_(blocks && !on_callers_stream) {}

  /// Everything that the pass enqueues comes after what the caller's stream holds now.
  Result<void> begin() {
    CaptureStatus capturing = kNotCapturing;
    const Status asked = api().stream_capture(caller_, &capturing);
    if (asked != kSuccess || capturing != kNotCapturing) {
      return Error{ErrorKind::kUnsupported,
                   "A call on device memory cannot be captured into a CUDA graph."};
    }
    if (out_ == caller_) return {};
    auto start = transfer_.events_->take();
    if (!start) return start.error();
    if (auto done = record(start->get(), caller_); !done) return done;
    return wait(out_, start->get());
  }

  Result<Piece> bring_out(std::span<const Part> in, std::size_t staging_bytes) override {
    auto place = take(staging_bytes);
    if (!place) return place.error();
    const auto [number, staging] = *place;
    const std::size_t word = transfer_.ring_.word_of(number);
    const std::uint32_t value = transfer_.ring_.value_of(number);
    Words& words = transfer_.words_[word];
    for (const auto& [rows, at] : in) {
      if (auto done = copy(placed(staging, rows, at), rows, out_); !done) return done.error();
    }
    if (auto done = write_word(words.in, value); !done) return done.error();
    return Piece{staging, Gate{&words.in, value, &words.out, value}, number};
  }

  Result<void> bring_back(const Piece& piece, std::span<const Part> out) override {
    if (auto done = wait_for_word(piece.gate); !done) return done;
    for (const auto& [rows, at] : out) {
      if (auto done = copy(rows, placed(piece.staging, rows, at), back_); !done) return done;
    }
    auto event = transfer_.events_->take();
    if (!event) return event.error();
    if (auto done = record(event->get(), back_); !done) return done;
    last_end_ = *std::move(event);
    for (Large& large : transfer_.large_) {
      if (large.place == piece.place) large.end = last_end_;
    }
    transfer_.ring_.set_end(piece.place, last_end_);
    return {};
  }

  Result<std::shared_ptr<DeviceEnd>> end() override {
    if (blocks_ && last_end_ != nullptr) {
      if (auto done = wait(caller_, last_end_.get()); !done) return done.error();
    }
    return std::shared_ptr<DeviceEnd>(
        std::make_shared<EventEnd>(transfer_.gpu_, std::move(last_end_)));
  }

 private:
  const Api& api() const { return transfer_.gpu_->api(); }
  Result<void> check(Status status, std::string_view call) const {
    return transfer_.gpu_->driver().check(status, call);
  }
  Result<void> record(Event event, Stream stream) const {
    return check(api().event_record(event, stream), "cuEventRecord");
  }
  Result<void> wait(Stream stream, Event event) const {
    return check(api().stream_wait_event(stream, event, 0), "cuStreamWaitEvent");
  }

  /// The number of a place and its staging memory, which is free when `out_` comes to what is
  /// enqueued next.
  Result<std::pair<std::uint64_t, std::byte*>> take(std::size_t bytes) {
    const bool large = bytes > transfer_.ring_.bytes();
    std::vector<EventPool::Held> ends;
    const auto place = transfer_.ring_.take(large ? 0 : bytes, ends);
    for (const EventPool::Held& end : ends) {
      if (auto done = wait(out_, end.get()); !done) return done.error();
    }
    std::byte* staging = transfer_.staging_.get() + kWords * sizeof(Words) + place.offset;
    if (large) {
      auto own = transfer_.take_large(place.number, bytes);
      if (!own) return own.error();
      staging = *own;
    }
    return std::pair(place.number, staging);
  }

  /// Where rows lie in staging memory.
  static Rows placed(std::byte* staging, const Rows& rows, std::size_t at) {
    return {staging + at, rows.bytes, rows.count, rows.bytes};
  }

  Result<void> copy(const Rows& to, const Rows& from, Stream stream) const {
    if (from.total() == 0) return {};
    // Registered memory of the host has one address for copies, as device memory has.
    const auto address = [](const Rows& rows) { return reinterpret_cast<Address>(rows.data); };
    if (from.count == 1) {
      return check(api().memory_copy(address(to), address(from), from.bytes, stream),
                   "cuMemcpyAsync");
    }
    Copy2d rows{};
    rows.from_type = rows.to_type = kUnifiedMemory;
    rows.from = address(from);
    rows.from_pitch = from.pitch;
    rows.to = address(to);
    rows.to_pitch = to.pitch;
    rows.bytes = from.bytes;
    rows.rows = from.count;
    return check(api().memory_copy_2d(&rows, stream), "cuMemcpy2DAsync_v2");
  }

  Result<void> write_word(std::atomic<std::uint32_t>& word, std::uint32_t value) const {
    if (transfer_.waits_on_device_) {
      return check(api().stream_write_word(out_, transfer_.address_of(word), value, 0),
                   "cuStreamWriteValue32_v2");
    }
    if (auto done = check(api().stream_synchronize(out_), "cuStreamSynchronize"); !done) {
      return done;
    }
    word.store(value, std::memory_order_release);
    return {};
  }

  Result<void> wait_for_word(const Gate& gate) const {
    if (transfer_.waits_on_device_) {
      const auto wait = [&](const std::atomic<std::uint32_t>& word, std::uint32_t value) {
        return check(api().stream_wait_word(back_, transfer_.address_of(word), value, kWaitAtLeast),
                     "cuStreamWaitValue32_v2");
      };
      // An operation that fails may end before its input has been copied.
      if (back_ != out_) {
        if (auto done = wait(*gate.in, gate.in_value); !done) return done;
      }
      return wait(*gate.out, gate.out_value);
    }
    // The operation has a deadline, so this ends.
    while (gate.out->load(std::memory_order_acquire) != gate.out_value) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return {};
  }

  CudaHostTransfer& transfer_;
  const std::lock_guard<std::mutex> lock_;
  const Gpu::Scope scope_;
  const Stream caller_, out_, back_;
  const bool blocks_;
  EventPool::Held last_end_;
};

CudaHostTransfer::CudaHostTransfer(std::shared_ptr<const Gpu> gpu,
                                   std::shared_ptr<farandole::Memory> memory, OwnStream out,
                                   OwnStream back, std::shared_ptr<std::byte> staging)
    : gpu_(std::move(gpu)),
      memory_(std::move(memory)),
      events_(std::make_shared<EventPool>(gpu_)),
      out_(std::move(out)),
      back_(std::move(back)),
      staging_(std::move(staging)),
      words_(new (staging_.get()) Words[kWords]),
      ring_(kRingBytes, kWords) {}

CudaHostTransfer::~CudaHostTransfer() {
  const Gpu::Scope scope(*gpu_);
  gpu_->api().stream_synchronize(out_.get());
  gpu_->api().stream_synchronize(back_.get());
}

Result<std::unique_ptr<HostTransfer>> CudaHostTransfer::create(
    std::shared_ptr<const Gpu> gpu, std::shared_ptr<farandole::Memory> memory) {
  const Gpu::Scope scope(*gpu);
  auto out = OwnStream::create(gpu);
  if (!out) return out.error();
  auto back = OwnStream::create(gpu);
  if (!back) return back.error();
  auto staging = registered(gpu, memory, kWords * sizeof(Words) + kRingBytes);
  if (!staging) return staging.error();
  std::unique_ptr<CudaHostTransfer> made(new CudaHostTransfer(
      std::move(gpu), std::move(memory), *std::move(out), *std::move(back), *std::move(staging)));
  if (auto found = made->find_words(); !found) return found.error();
  return std::unique_ptr<HostTransfer>(std::move(made));
}

/// Finds out whether streams can wait for words, by trying.
Result<void> CudaHostTransfer::find_words() {
  auto wanted = flag_setting("FARANDOLE_DEVICE_WORDS");
  if (!wanted) return wanted.error();
  const Driver& driver = gpu_->driver();
  const Status found = gpu_->api().host_address(&words_address_, words_, 0);
  if (auto done = driver.check(found, "cuMemHostGetDevicePointer_v2"); !done) return done;
  if (!*wanted) return {};
  std::atomic<std::uint32_t>& word = words_[0].in;
  const Status written = gpu_->api().stream_write_word(out_.get(), address_of(word), 0, 0);
  const Status waited = gpu_->api().stream_wait_word(out_.get(), address_of(word), 0, kWaitAtLeast);
  const Status done = gpu_->api().stream_synchronize(out_.get());
  waits_on_device_ = written == kSuccess && waited == kSuccess && done == kSuccess;
  if (!waits_on_device_) {
    log(LogLevel::kWarning, "streams of " + gpu_->name() +
                                " cannot wait for words in memory, so calls on its memory block "
                                "the host until they have ended");
  }
  return driver.check(done, "cuStreamSynchronize");
}

Address CudaHostTransfer::address_of(const std::atomic<std::uint32_t>& word) const {
  const auto* const at = reinterpret_cast<const std::byte*>(&word);
  return words_address_ + static_cast<Address>(at - reinterpret_cast<std::byte*>(words_));
}

Result<std::unique_ptr<HostTransfer::Pass>> CudaHostTransfer::begin(void* stream, bool blocks,
                                                                    std::size_t bytes,
                                                                    std::size_t pieces) {
  const bool small = blocks && pieces == 1 && bytes <= kSmallBytes && waits_on_device_;
  auto pass = std::make_unique<CallPass>(*this, handle_of(stream), blocks, small);
  if (auto begun = pass->begin(); !begun) return begun.error();
  return std::unique_ptr<Pass>(std::move(pass));
}

std::size_t CudaHostTransfer::pieces_at_once(std::size_t bytes) const {
  return std::max<std::size_t>(kRingBytes / std::max<std::size_t>(bytes, 1) / 2, 1);
}

Result<std::byte*> CudaHostTransfer::take_large(std::uint64_t place, std::size_t bytes) {
  for (Large& large : large_) {
    const bool free = large.end != nullptr && gpu_->api().event_query(large.end.get()) == kSuccess;
    if (!free || large.bytes < bytes) continue;
    large.place = place;
    large.end = nullptr;
    return large.memory.get();
  }
  auto made = registered(gpu_, memory_, bytes);
  if (!made) return made.error();
  large_.push_back({place, *std::move(made), bytes, nullptr});
  return large_.back().memory.get();
}

}  // namespace farandole::cuda
