// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "conformance/harness.hpp"

namespace farandole::conformance {
namespace {

/// Around every limit inside the transports: a cache line, a slot, a block, a head, a pipe.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> result = {0, 1, 15, 16, 17, 63, 64, 65, 1000};
  for (const std::size_t kib : {4, 16, 64, 128, 512, 2048}) {
    for (const std::size_t size : {kib * 1024 - 1, kib * 1024, kib * 1024 + 1}) {
      result.push_back(size);
    }
  }
  result.insert(result.end(), {(std::size_t{1} << 20) + 3, std::size_t{8} << 20});
  return result;
}

/// Checks what consume() is promised, and keeps the bytes.
struct Consumer {
  explicit Consumer(std::size_t bytes) : data(bytes), seen(bytes) {}
  static void consume(void* context, Bytes offset, const std::byte* piece, Bytes bytes) {
    auto& self = *static_cast<Consumer*>(context);
    EXPECT_EQ(offset.value() % Receive::kPieceAlignment, 0u);
    EXPECT_GT(bytes.value(), 0u) << "an empty message has no piece";
    ASSERT_LE(offset.value() + bytes.value(), self.data.size());
    std::memcpy(self.data.data() + offset.value(), piece, bytes.value());
    for (std::size_t i = 0; i < bytes.value(); ++i) ++self.seen[offset.value() + i];
  }
  std::vector<std::byte> data;
  std::vector<std::uint8_t> seen;
};

// Goal: every size arrives whole, from library-owned and from foreign memory, aligned or not.
// Method: one message per (size, memory, skew), received to a target, by consume(), which must see
// each byte once, and to targets about which the transport is told what may have it copy otherwise.
TEST_P(Conformance, EverySizeFromEveryMemory) {
  run(GetParam(), 2, [&](Node& node) {
    std::uint64_t index = 0;
    for (const std::size_t bytes : sizes()) {
      for (const auto kind : {Buffer::Kind::kOwned, Buffer::Kind::kForeign}) {
        for (const std::size_t skew : {std::size_t{0}, std::size_t{3}}) {
          const std::uint64_t seed = seed_of(0, 1, ++index);
          Buffer buffer(node, kind, bytes, skew);
          if (node.rank() == 0) {
            fill(buffer.span(), seed);
            Send sends[4];
            for (std::uint32_t i = 0; i < 4; ++i) sends[i] = send_of(1, tag_of(i), buffer.span());
            for (Send& send : sends) node.transport().post(send);
            node.wait(sends, {});
            for (const Send& send : sends) EXPECT_EQ(send.state, TransferState::kDone);
            continue;
          }
          Consumer consumer(bytes);
          Buffer part(node, kind, bytes, skew), known(node, kind, bytes, skew);
          Receive receives[4] = {
              receive_of(0, tag_of(0), buffer.span()), receive_of(0, tag_of(1), buffer.span()),
              receive_of(0, tag_of(2), part.span()), receive_of(0, tag_of(3), known.span())};
          receives[1].target = nullptr;
          receives[1].consume = &Consumer::consume;
          receives[1].context = &consumer;
          receives[2].buffer_bytes = Bytes{std::size_t{1} << 30};
          receives[3].peer_has_made = true;
          receives[3].peer_has_read = skew == 0;
          for (Receive& receive : receives) node.transport().post(receive);
          node.wait({}, receives);
          EXPECT_EQ(first_wrong(buffer.span(), seed), -1) << bytes << " bytes to a target";
          EXPECT_EQ(first_wrong(part.span(), seed), -1) << bytes << " bytes of a large buffer";
          EXPECT_EQ(first_wrong(known.span(), seed), -1)
              << bytes << " bytes that the peer has made";
          EXPECT_EQ(first_wrong(consumer.data, seed), -1) << bytes << " bytes consumed";
          EXPECT_TRUE(std::ranges::all_of(consumer.seen, [](auto n) { return n == 1; }));
        }
      }
    }
  });
}

/// Random sizes, small ones often; the same on both ends.
std::size_t random_size(int from, int to, std::uint64_t index) {
  const std::uint64_t random = seed_of(from, to, index ^ 0xabcdef);
  return (random >> 8) % (std::size_t{1} << (random % 20));
}

/// Everybody sends `count` messages to everybody, all posted at once.
void all_to_all(Node& node, std::uint64_t count) {
  std::deque<Buffer> out, in;
  std::deque<Send> sends;
  std::deque<Receive> receives;
  for (std::uint64_t i = 0; i < count; ++i) {
    for (int step = 1; step < node.size(); ++step) {
      const int to = (node.rank() + step) % node.size();
      const int from = (node.rank() - step + node.size()) % node.size();
      const auto kind = i % 2 == 0 ? Buffer::Kind::kOwned : Buffer::Kind::kForeign;
      const Tag tag = tag_of(static_cast<std::uint32_t>(i / 3));
      in.emplace_back(node, Buffer::Kind::kForeign, random_size(from, node.rank(), i));
      node.transport().post(receives.emplace_back(receive_of(from, tag, in.back().span())));
      out.emplace_back(node, kind, random_size(node.rank(), to, i));
      fill(out.back().span(), seed_of(node.rank(), to, i));
      node.transport().post(sends.emplace_back(send_of(to, tag, out.back().span())));
    }
  }
  for (Send& send : sends) node.wait(send);
  std::size_t next = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    for (int step = 1; step < node.size(); ++step, ++next) {
      const int from = (node.rank() - step + node.size()) % node.size();
      node.wait(receives[next]);
      EXPECT_EQ(receives[next].state, TransferState::kDone);
      EXPECT_EQ(first_wrong(in[next].span(), seed_of(from, node.rank(), i)), -1)
          << "message " << i << " from " << from << " to " << node.rank();
    }
  }
}

// Goal: nothing is lost, doubled or mixed up when all ranks send to all at once.
// Method: random sizes and data unique to (from, to, index), for small, odd and larger p.
TEST_P(Conformance, AllToAll) {
  for (const int p : {2, 3, 8}) {
    run(GetParam(), p, [](Node& node) { all_to_all(node, 24); });
  }
}

// Goal: no piece begins within an element, however many messages share a step of the transport.
// Method: a message of odd length before more long ones than are delivered at a time.
TEST_P(Conformance, PiecesBeginBetweenElements) {
  constexpr std::uint32_t kCount = 24;
  for (const auto kind : {Buffer::Kind::kOwned, Buffer::Kind::kForeign}) {
    run(GetParam(), 2, [&](Node& node) {
      std::deque<Buffer> buffers;
      std::deque<Send> sends;
      std::deque<Receive> receives;
      std::size_t within = 0;
      for (std::uint32_t i = 0; i < kCount; ++i) {
        buffers.emplace_back(node, kind, i == 0 ? 5001 : 300'001);
        if (node.rank() == 0) {
          sends.push_back(send_of(1, tag_of(i), buffers.back().span()));
          node.transport().post(sends.back());
          continue;
        }
        Receive& receive = receives.emplace_back(receive_of(0, tag_of(i), buffers.back().span()));
        receive.context = &within;
        receive.consume = [](void* context, Bytes offset, const std::byte*, Bytes) {
          const bool aligned = offset.value() % Receive::kPieceAlignment == 0;
          *static_cast<std::size_t*>(context) += aligned ? 0 : 1;
        };
      }
      node.barrier();
      node.settle();
      for (Receive& receive : receives) node.transport().post(receive);
      for (Send& send : sends) node.wait(send);
      for (Receive& receive : receives) node.wait(receive);
      EXPECT_EQ(within, 0u);
    });
  }
}

// Goal: what was sent and received is counted.
// Method: a known exchange; the counters grow by exactly that.
TEST_P(Conformance, CountersCountPayload) {
  run(GetParam(), 2, [](Node& node) {
    const TransportCounters before = node.transport().counters();
    const int other = 1 - node.rank();
    Buffer out(node, Buffer::Kind::kForeign, 100'000), in(node, Buffer::Kind::kForeign, 100'000);
    for (const std::size_t bytes : {std::size_t{10}, std::size_t{100'000}}) {
      Send send = send_of(other, tag_of(1), out.span().first(bytes));
      Receive receive = receive_of(other, tag_of(1), in.span().first(bytes));
      node.transport().post(send);
      node.transport().post(receive);
      node.wait(send);
      node.wait(receive);
    }
    const TransportCounters after = node.transport().counters();
    EXPECT_EQ(after.sent_messages - before.sent_messages, 2u);
    EXPECT_EQ(after.received_messages - before.received_messages, 2u);
    EXPECT_EQ(after.sent_bytes - before.sent_bytes, 100'010u);
    EXPECT_EQ(after.received_bytes - before.received_bytes, 100'010u);
  });
}

}  // namespace
}  // namespace farandole::conformance
