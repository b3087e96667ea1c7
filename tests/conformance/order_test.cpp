// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "conformance/harness.hpp"

namespace farandole::conformance {
namespace {

// Goal: messages with one tag match in the order posted, small and large ones mixed.
// Method: a stream of messages of different sizes, each filled with data unique to its position.
TEST_P(Conformance, OneTagKeepsItsOrder) {
  constexpr std::size_t kSizes[] = {8, 100'000, 0, 5000, 4096, 4097, 1, 300'000};
  run(GetParam(), 2, [&](Node& node) {
    std::deque<Buffer> buffers;
    std::deque<Send> sends;
    std::deque<Receive> receives;
    for (std::uint64_t i = 0; i < 96; ++i) {
      buffers.emplace_back(node, i % 3 == 0 ? Buffer::Kind::kOwned : Buffer::Kind::kForeign,
                           kSizes[i % std::size(kSizes)]);
      if (node.rank() == 0) {
        fill(buffers.back().span(), seed_of(0, 1, i));
        node.transport().post(sends.emplace_back(send_of(1, tag_of(7), buffers.back().span())));
      } else {
        node.transport().post(
            receives.emplace_back(receive_of(0, tag_of(7), buffers.back().span())));
      }
    }
    for (Send& send : sends) node.wait(send);
    for (std::uint64_t i = 0; i < receives.size(); ++i) {
      node.wait(receives[i]);
      EXPECT_EQ(receives[i].state, TransferState::kDone);
      EXPECT_EQ(first_wrong(buffers[i].span(), seed_of(0, 1, i)), -1) << "message " << i;
    }
  });
}

// Goal: messages with different tags never wait for each other, in whatever order they are posted.
// Method: both sides post all tags, one in the opposite order of the other, both ways at once.
TEST_P(Conformance, TagsDoNotWaitForEachOther) {
  constexpr std::uint32_t kTags = 40;
  for (const std::size_t bytes : {std::size_t{24}, std::size_t{20'000}, std::size_t{700'000}}) {
    run(GetParam(), 2, [&](Node& node) {
      const int other = 1 - node.rank();
      std::deque<Buffer> out, in;
      std::deque<Send> sends;
      std::deque<Receive> receives;
      for (std::uint32_t i = 0; i < kTags; ++i) {
        const std::uint32_t tag = node.rank() == 0 ? i : kTags - 1 - i;
        out.emplace_back(node, Buffer::Kind::kForeign, bytes);
        fill(out.back().span(), seed_of(node.rank(), other, tag));
        sends.push_back(send_of(other, tag_of(tag / 4, tag % 4), out.back().span()));
        node.transport().post(sends.back());
      }
      for (std::uint32_t tag = 0; tag < kTags; ++tag) {
        in.emplace_back(node, Buffer::Kind::kForeign, bytes);
        receives.push_back(receive_of(other, tag_of(tag / 4, tag % 4), in.back().span()));
        node.transport().post(receives.back());
      }
      for (Send& send : sends) node.wait(send);
      for (std::uint32_t tag = 0; tag < kTags; ++tag) {
        node.wait(receives[tag]);
        EXPECT_EQ(first_wrong(in[tag].span(), seed_of(other, node.rank(), tag)), -1);
      }
    });
  }
}

/// Where a receive's pieces go, and whether one came before the receive that it is to stay behind.
struct Follower {
  std::span<std::byte> into;
  const Receive* behind = nullptr;
  bool overtook = false;

  static void consume(void* context, Bytes offset, const std::byte* data, Bytes bytes) {
    Follower& self = *static_cast<Follower*>(context);
    self.overtook |= self.behind != nullptr && offset + bytes > self.behind->moved;
    std::copy_n(data, bytes.value(), self.into.data() + offset.value());
  }
};

// Goal: of a receive no more is delivered than of the one that it is to stay behind, and nothing
// stands still, whatever memory the messages come from. Method: every rank receives from all others
// in many operations at once, each receive behind the one before it. In the first half of the
// operations messages of odd ranks lead, which send these last; in the other half those of even
// ranks, which send those last. So whatever a rank has to give out is wanted elsewhere first.
TEST_P(Conformance, ReceivesStayBehind) {
  constexpr int kRanks = 4;
  constexpr std::uint32_t kOperations = 24;
  for (const auto kind : {Buffer::Kind::kOwned, Buffer::Kind::kForeign}) {
    run(GetParam(), kRanks, [&](Node& node) {
      const Capabilities& capabilities = node.transport().capabilities();
      if (!capabilities.follows) return;
      const std::size_t bytes = capabilities.follow_bytes.value() + 300'000;
      std::deque<Buffer> out, in;
      std::deque<Send> sends;
      std::deque<Receive> receives;
      std::deque<Follower> followers;
      for (std::uint32_t i = 0; i < kOperations; ++i) {
        const Receive* before = nullptr;
        for (const int peer : {1, 3, 0, 2}) {
          const int source = i < kOperations / 2 ? peer : peer ^ 1;
          if (source == node.rank()) continue;
          in.emplace_back(node, Buffer::Kind::kForeign, bytes);
          receives.push_back(receive_of(source, tag_of(i), in.back().span()));
          Receive& receive = receives.back();
          receive.behind = std::exchange(before, &receive);
          followers.push_back({in.back().span(), receive.behind});
          receive.consume = &Follower::consume;
          receive.context = &followers.back();
          node.transport().post(receive);
        }
      }
      node.barrier();
      for (std::uint32_t turn = 0; turn < kOperations; ++turn) {
        const std::uint32_t i = node.rank() % 2 == 0 ? turn : kOperations - 1 - turn;
        for (int peer = 0; peer < kRanks; ++peer) {
          if (peer == node.rank()) continue;
          out.emplace_back(node, kind, bytes);
          fill(out.back().span(), seed_of(node.rank(), peer, i));
          node.transport().post(sends.emplace_back(send_of(peer, tag_of(i), out.back().span())));
        }
      }
      for (std::size_t at = 0; at < receives.size(); ++at) {
        node.wait(receives[at]);
        const int peer = receives[at].peer.value();
        EXPECT_EQ(first_wrong(in[at].span(), seed_of(peer, node.rank(), at / (kRanks - 1))), -1);
        EXPECT_FALSE(followers[at].overtook) << at;
      }
      for (Send& send : sends) node.wait(send);
    });
  }
}

// Goal: what is sent on while it arrives is what arrived, whatever memory it comes from, lies in
// and goes to. Method: a chain of four ranks in many operations at once; every place holds other
// bytes before, so whatever overtakes is wrong. Rank 0 sends the operations in the opposite order.
// Every second receive consumes.
TEST_P(Conformance, SendsStayBehind) {
  constexpr std::uint32_t kOperations = 40;
  run(GetParam(), 4, [&](Node& node) {
    const Capabilities& capabilities = node.transport().capabilities();
    if (!capabilities.follows) return;
    const std::size_t bytes = capabilities.follow_bytes.value() + 700'003;
    std::deque<Buffer> buffers;
    std::deque<Send> sends;
    std::deque<Receive> receives;
    std::deque<Follower> followers;
    for (std::uint32_t turn = 0; turn < kOperations; ++turn) {
      const std::uint32_t i = node.rank() == 0 ? kOperations - 1 - turn : turn;
      const bool owned = (i >> node.rank()) % 2 == 0;
      buffers.emplace_back(node, owned ? Buffer::Kind::kOwned : Buffer::Kind::kForeign, bytes);
      const std::span<std::byte> data = buffers.back().span();
      fill(data, seed_of(node.rank(), 0, i));
      if (node.rank() > 0) {
        Receive& receive =
            receives.emplace_back(receive_of(node.rank() - 1, tag_of(i), buffers.back().span()));
        receive.peer_has_made = i % 3 < 2;
        receive.peer_has_read = i % 3 == 0;
        if (i % 2 == 1) {
          receive.consume = &Follower::consume;
          receive.context = &followers.emplace_back(Follower{data});
        }
        node.transport().post(receive);
      }
      if (node.rank() == 3) continue;
      Send& send = sends.emplace_back(send_of(node.rank() + 1, tag_of(i), data));
      if (node.rank() > 0) send.behind = &receives.back();
      if (node.rank() > 0) node.transport().post(send);
    }
    node.barrier();
    for (Send& send : sends) {
      if (node.rank() == 0) node.transport().post(send);
    }
    for (Send& send : sends) node.wait(send);
    for (std::uint32_t i = 0; i < receives.size(); ++i) {
      node.wait(receives[i]);
      EXPECT_EQ(first_wrong(buffers[i].span(), seed_of(0, 0, i)), -1) << i;
    }
  });
}

// Goal: a rank that sends on what arrives, and whose own sender gives up in the middle, sends no
// more, and can be cancelled wherever it is. Method: the middle one of three ranks, after more or
// fewer steps; afterwards the same ranks do it again without a fault.
TEST_P(Conformance, SenderOfWhatIsSentOnGivesUp) {
  static constexpr std::size_t kBytes = (std::size_t{4} << 20) + 24;
  for (const int steps : {0, 1, 3, 10, 30, 100, 30, 10}) {
    for (const auto kind : {Buffer::Kind::kOwned, Buffer::Kind::kForeign}) {
      run(GetParam(), 3, [&](Node& node) {
        if (!node.transport().capabilities().follows) return;
        Buffer data(node, kind, kBytes);
        for (std::uint32_t i = 1; i <= 2; ++i) {
          fill(data.span(), seed_of(node.rank(), 0, i));
          Receive receive = receive_of(node.rank() - 1, tag_of(i), data.span());
          receive.peer_has_made = true;
          receive.peer_has_read = i == 1;
          Send send = send_of(node.rank() + 1, tag_of(i), data.span());
          node.barrier();
          if (node.rank() > 0) node.transport().post(receive);
          if (node.rank() == 1) send.behind = &receive;
          if (node.rank() < 2) node.transport().post(send);
          if (i == 1) {
            for (int step = 0; node.rank() == 0 && step < steps; ++step) {
              node.transport().progress();
              std::this_thread::yield();
            }
            if (node.rank() == 0) node.cancel(tag_of(i).operation);
            node.barrier();
            node.settle();
            node.cancel(tag_of(i).operation);
            node.barrier();
            continue;
          }
          if (node.rank() < 2) node.wait(send);
          if (node.rank() == 0) continue;
          node.wait(receive);
          EXPECT_EQ(first_wrong(data.span(), seed_of(0, 0, i)), -1);
        }
        node.barrier();
      });
    }
  }
}

// Goal: a receive that stays behind one whose sender gives up in the middle, so that this begins
// anew, gets nothing beyond its message. Method: rank 1 cancels what leads soon after it has begun,
// after more or fewer steps; every piece of what follows must lie inside it.
TEST_P(Conformance, LeaderGivesUp) {
  static constexpr std::size_t kBytes = (std::size_t{8} << 20) + 24;
  for (const int steps : {0, 1, 3, 10, 30, 100, 300, 30, 30, 100, 100}) {
    run(GetParam(), 3, [&](Node& node) {
      if (!node.transport().capabilities().follows) return;
      Buffer data(node, node.rank() == 2 ? Buffer::Kind::kOwned : Buffer::Kind::kForeign, kBytes);
      if (node.rank() == 0) {
        Buffer led(node, Buffer::Kind::kForeign, kBytes);
        Receive leads = receive_of(1, tag_of(1), data.span());
        Receive follows = receive_of(2, tag_of(1), led.span());
        follows.behind = &leads;
        struct Pieces {
          std::size_t count = 0, beyond = 0;
        } pieces;
        follows.context = &pieces;
        follows.consume = [](void* context, Bytes offset, const std::byte*, Bytes bytes) {
          Pieces& seen = *static_cast<Pieces*>(context);
          ++seen.count;
          seen.beyond += (offset + bytes).value() > kBytes ? 1 : 0;
        };
        node.transport().post(leads);
        node.transport().post(follows);
        node.barrier();
        node.settle();
        EXPECT_EQ(pieces.beyond, 0u) << "of " << pieces.count;
        node.cancel(tag_of(1).operation);
      } else {
        Send send = send_of(0, tag_of(1), data.span());
        node.transport().post(send);
        for (int i = 0; node.rank() == 1 && i < steps; ++i) {
          node.transport().progress();
          std::this_thread::yield();
        }
        if (node.rank() == 1) node.cancel(tag_of(1).operation);
        node.barrier();
        node.settle();
        node.cancel(tag_of(1).operation);
      }
      node.barrier();
    });
  }
}

// Goal: the last of many messages can be received first, however many came before it.
// Method: more early messages than any pool or ring holds; the receives come in reverse, each
// posted only when the one before it has ended. The order of posting decides within a tag.
TEST_P(Conformance, ManyEarlyMessagesAreSetAside) {
  constexpr std::uint32_t kCount = 700;
  run(GetParam(), 2, [&](Node& node) {
    const std::size_t sizes[] = {0, 40, 4000};
    std::deque<Buffer> buffers;
    std::deque<Send> sends;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      buffers.emplace_back(node, Buffer::Kind::kForeign, sizes[i % 3]);
    }
    if (node.rank() == 0) {
      for (std::uint32_t i = 0; i < kCount; ++i) {
        fill(buffers[i].span(), seed_of(0, 1, i));
        node.transport().post(sends.emplace_back(send_of(1, tag_of(i), buffers[i].span())));
      }
      for (Send& send : sends) node.wait(send);
    } else {
      for (std::uint32_t i = kCount; i-- > 0;) {
        Receive receive = receive_of(0, tag_of(i), buffers[i].span());
        node.transport().post(receive);
        node.wait(receive);
        ASSERT_EQ(first_wrong(buffers[i].span(), seed_of(0, 1, i)), -1) << "message " << i;
      }
    }
  });
}

// Goal: large early messages wait too, and are delivered once their receives come.
// Method: as above with announced messages, from the library's memory and from elsewhere.
TEST_P(Conformance, LargeEarlyMessagesAreSetAside) {
  constexpr std::uint32_t kCount = 30;
  run(GetParam(), 2, [&](Node& node) {
    std::deque<Buffer> buffers;
    std::deque<Send> sends;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const auto kind = i % 2 == 0 ? Buffer::Kind::kOwned : Buffer::Kind::kForeign;
      buffers.emplace_back(node, kind, 50'000 + i);
    }
    if (node.rank() == 0) {
      for (std::uint32_t i = 0; i < kCount; ++i) {
        fill(buffers[i].span(), seed_of(0, 1, i));
        node.transport().post(sends.emplace_back(send_of(1, tag_of(i), buffers[i].span())));
      }
      for (Send& send : sends) node.wait(send);
    } else {
      node.settle();
      for (std::uint32_t i = kCount; i-- > 0;) {
        Receive receive = receive_of(0, tag_of(i), buffers[i].span());
        node.transport().post(receive);
        node.wait(receive);
        ASSERT_EQ(first_wrong(buffers[i].span(), seed_of(0, 1, i)), -1) << "message " << i;
      }
    }
  });
}

}  // namespace
}  // namespace farandole::conformance
