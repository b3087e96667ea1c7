// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "transport/tcp/input.hpp"
#include "unit/transport/tcp_sockets.hpp"

namespace farandole::tcp {
namespace {

constexpr std::uint64_t kReceiveId = 7;

void append(std::vector<std::byte>& stream, const Frame& frame,
            std::span<const std::byte> payload = {}) {
  const auto header = encode(frame);
  stream.insert(stream.end(), header.begin(), header.end());
  stream.insert(stream.end(), payload.begin(), payload.end());
}

// Writes down what the input says; has one receive, kReceiveId.
class Recorder final : public InputHandler {
 public:
  std::optional<std::uint64_t> on_head(const Frame&) override { return std::nullopt; }
  bool on_message(const Frame& frame, const std::byte* head) override {
    frames.push_back(frame);
    heads.emplace_back(head, head + frame.payload);
    return true;
  }
  bool on_answer(const Frame& frame) override {
    frames.push_back(frame);
    return true;
  }
  DataFate on_data(const Frame& frame) override {
    frames.push_back(frame);
    if (frame.id != kReceiveId || receive == nullptr) return DataFate::kDropped;
    const bool fits = frame.offset + frame.payload <= receive->bytes.value();
    return fits ? DataFate::kTaken : DataFate::kCorrupt;
  }
  Receive* receive_of(std::uint64_t id) override { return id == kReceiveId ? receive : nullptr; }
  void delivered(std::uint64_t, Bytes bytes) override { delivered_bytes += bytes.value(); }

  Receive* receive = nullptr;
  std::vector<Frame> frames;
  std::vector<std::vector<std::byte>> heads;
  std::size_t delivered_bytes = 0;
};

class InputTest : public testing::Test {
 protected:
  InputTest() { std::tie(near_, far_) = local_pair(1 << 20); }
  ~InputTest() override {
    ::close(near_);
    if (far_ >= 0) ::close(far_);
  }

  void write(std::span<const std::byte> data) {
    ASSERT_EQ(::write(far_, data.data(), data.size()), static_cast<ssize_t>(data.size()));
  }
  // Sends the stream in chunks and reads after each.
  void feed(std::span<const std::byte> stream, std::size_t chunk) {
    for (std::size_t at = 0; at < stream.size(); at += chunk) {
      write(stream.subspan(at, std::min(chunk, stream.size() - at)));
      outcome = input.read(near_, recorder);
      ASSERT_FALSE(outcome.lost || outcome.corrupt) << "at byte " << at;
    }
  }

  int near_, far_;
  Input input;
  Recorder recorder;
  Input::Outcome outcome;
};

std::vector<std::byte> mixed_stream(std::span<const std::byte> data) {
  std::vector<std::byte> stream;
  append(stream, {.bytes = 5, .payload = 5}, data.first(5));
  append(stream, {.bytes = 0});
  append(stream, {.kind = FrameKind::kData, .id = kReceiveId, .offset = 1600, .payload = 1003},
         data.subspan(1600, 1003));
  append(stream, {.kind = FrameKind::kReady, .id = 1, .reply = 2});
  append(stream, {.kind = FrameKind::kData, .id = 99, .payload = 77}, data.first(77));
  append(stream, {.kind = FrameKind::kData, .id = kReceiveId, .offset = 0, .payload = 1600},
         data.first(1600));
  append(stream, {.bytes = 1000, .reply = 3, .payload = 160}, data.first(160));
  return stream;
}

// Goal: frames come out the same however the stream is cut.
// Method: every chunk size up to a few headers, then larger ones, to a target and to consume.
TEST_F(InputTest, CutsDoNotMatter) {
  const auto data = numbered(2603);
  const auto stream = mixed_stream(data);
  for (std::size_t chunk = 1; chunk < 6000; chunk += chunk < 150 ? 1 : 311) {
    recorder = Recorder();
    Receive receive;
    std::vector<std::byte> target(data.size());
    receive.bytes = Bytes{data.size()};
    receive.target = target.data();
    recorder.receive = &receive;
    feed(stream, chunk);
    ASSERT_EQ(recorder.frames.size(), 7u) << chunk;
    ASSERT_EQ(target, data) << chunk;
    ASSERT_EQ(recorder.delivered_bytes, data.size()) << chunk;
    ASSERT_TRUE(std::ranges::equal(recorder.heads[0], std::span(data).first(5)));
    ASSERT_TRUE(recorder.heads[1].empty());
    ASSERT_TRUE(std::ranges::equal(recorder.heads[2], std::span(data).first(160)));
  }
}

struct Pieces {
  std::vector<std::byte> data;
  std::vector<int> times;
  bool aligned = true;
};

void collect(void* context, Bytes offset, const std::byte* data, Bytes bytes) {
  Pieces& pieces = *static_cast<Pieces*>(context);
  pieces.aligned &= offset.value() % Receive::kPieceAlignment == 0;
  std::copy_n(data, bytes.value(), pieces.data.begin() + static_cast<long>(offset.value()));
  for (std::size_t i = 0; i < bytes.value(); ++i) ++pieces.times[offset.value() + i];
}

TEST_F(InputTest, PiecesAreAlignedAndComeOnce) {
  const auto data = numbered(2603);
  const auto stream = mixed_stream(data);
  for (std::size_t chunk = 1; chunk < 6000; chunk += chunk < 150 ? 1 : 311) {
    recorder = Recorder();
    Pieces pieces{std::vector<std::byte>(data.size()), std::vector<int>(data.size())};
    Receive receive;
    receive.bytes = Bytes{data.size()};
    receive.consume = collect;
    receive.context = &pieces;
    recorder.receive = &receive;
    feed(stream, chunk);
    ASSERT_EQ(recorder.frames.size(), 7u) << chunk;
    ASSERT_TRUE(pieces.aligned) << chunk;
    ASSERT_EQ(pieces.data, data) << chunk;
    ASSERT_EQ(std::ranges::count(pieces.times, 1), static_cast<long>(data.size())) << chunk;
  }
}

// Goal: a receive that goes away in the middle of a frame is not written any more, and the
// frames behind it are still understood.
TEST_F(InputTest, ReceiveVanishesInTheMiddle) {
  const auto data = numbered(4096);
  std::vector<std::byte> stream;
  append(stream, {.kind = FrameKind::kData, .id = kReceiveId, .payload = 4096}, data);
  append(stream, {.kind = FrameKind::kRefuse, .id = 4});
  Receive receive;
  std::vector<std::byte> target(4096);
  receive.bytes = Bytes{4096};
  receive.target = target.data();
  recorder.receive = &receive;
  feed(std::span(stream).first(1000), 500);
  const auto before = target;
  recorder.receive = nullptr;
  feed(std::span(stream).subspan(1000), 500);
  EXPECT_EQ(target, before);
  ASSERT_EQ(recorder.frames.size(), 2u);
  EXPECT_EQ(recorder.frames[1].kind, FrameKind::kRefuse);
}

// Goal: an id that is not alive when its frame begins never gets that frame's bytes; the range
// was not checked against it.
TEST_F(InputTest, LateReceiveGetsNothing) {
  const auto data = numbered(64);
  std::vector<std::byte> stream;
  append(stream, {.kind = FrameKind::kData, .id = kReceiveId, .offset = 1 << 20, .payload = 64},
         data);
  feed(std::span(stream).first(80), 80);
  Receive receive;
  std::vector<std::byte> target(16);
  receive.bytes = Bytes{16};
  receive.target = target.data();
  recorder.receive = &receive;
  feed(std::span(stream).subspan(80), 56);
  EXPECT_EQ(recorder.delivered_bytes, 0u);
  EXPECT_EQ(target, std::vector<std::byte>(16));
}

// Goal: the end of the stream is noticed wherever it comes, and what came before counts.
TEST_F(InputTest, TruncatedEverywhere) {
  const auto data = numbered(64);
  std::vector<std::byte> stream;
  append(stream, {.bytes = 64, .payload = 64}, data);
  for (std::size_t kept = 0; kept <= stream.size(); ++kept) {
    const auto [near, far] = local_pair();
    ASSERT_EQ(::write(far, stream.data(), kept), static_cast<ssize_t>(kept));
    ::close(far);
    Input fresh;
    Recorder log;
    Input::Outcome seen;
    while (!seen.lost) {
      seen = fresh.read(near, log);
      ASSERT_FALSE(seen.corrupt);
    }
    EXPECT_EQ(log.frames.size(), kept == stream.size() ? 1u : 0u) << kept;
    ::close(near);
  }
}

// Goal: no input makes the reader crash, over-read or write outside a target.
// Method: 10,000 inputs, half of them random bytes, half a legal stream with a few bytes changed;
// the target is guarded on both sides, the sanitizers watch the rest. Seed 1.
TEST(InputFuzz, TenThousandInputs) {
  std::mt19937_64 random(1);
  const auto data = numbered(2603);
  const auto legal = mixed_stream(data);
  int corrupt_count = 0;
  for (int round = 0; round < 10000; ++round) {
    std::vector<std::byte> stream = legal;
    if (round % 2 == 0) {
      stream.resize(random() % 4000);
      for (std::byte& each : stream) each = static_cast<std::byte>(random());
    } else {
      for (std::size_t i = 0; i < 1 + random() % 4; ++i) {
        stream[random() % stream.size()] = static_cast<std::byte>(random());
      }
    }
    const auto [near, far] = local_pair();
    ASSERT_EQ(::write(far, stream.data(), stream.size()), static_cast<ssize_t>(stream.size()));
    ::close(far);
    constexpr std::size_t kGuard = 64;
    std::vector<std::byte> target(2603 + 2 * kGuard);
    Receive receive;
    receive.bytes = Bytes{2603};
    receive.target = target.data() + kGuard;
    Recorder recorder;
    recorder.receive = &receive;
    Input input;
    Input::Outcome outcome;
    while (!outcome.lost && !outcome.corrupt) outcome = input.read(near, recorder);
    ::close(near);
    corrupt_count += outcome.corrupt ? 1 : 0;
    ASSERT_TRUE(std::all_of(target.begin(), target.begin() + kGuard,
                            [](std::byte each) { return each == std::byte{0}; }));
    ASSERT_TRUE(std::all_of(target.end() - kGuard, target.end(),
                            [](std::byte each) { return each == std::byte{0}; }));
  }
  EXPECT_GT(corrupt_count, 5000);
}

}  // namespace
}  // namespace farandole::tcp
