// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "unit/coordinator/job.hpp"

namespace farandole::coordinator {
namespace {

using test::tensor;

// Goal: every rank but 0 has one parent, every subtree is one run, and no rank has more than lg p
// children.
// Method: all ranks of jobs of up to 70 and of 27,600 ranks.
TEST(Tree, CoversAllRanksInRuns) {
  std::vector<std::int32_t> sizes{27600};
  for (std::int32_t size = 1; size <= 70; ++size) sizes.push_back(size);
  for (const std::int32_t size : sizes) {
    std::vector<std::int32_t> count(static_cast<std::size_t>(size), 1);  // of ranks below and with
    for (std::int32_t rank = size - 1; rank >= 0; --rank) {
      const Tree tree = Tree::at(rank, size);
      std::int32_t next = rank + 1;
      for (const std::int32_t child : tree.children) {
        ASSERT_EQ(child, next);
        ASSERT_EQ(Tree::at(child, size).parent, rank);
        next += count[static_cast<std::size_t>(child)];
      }
      count[static_cast<std::size_t>(rank)] = next - rank;
      ASSERT_EQ(tree.parent.has_value(), rank != 0);
      ASSERT_LE(tree.children.size(), std::bit_width(static_cast<std::uint32_t>(size - 1)));
    }
    ASSERT_EQ(count[0], size);
  }
  EXPECT_EQ(Tree::at(0, 8).children, (std::vector<std::int32_t>{1, 2, 4}));
  EXPECT_EQ(Tree::at(0, 9).children, (std::vector<std::int32_t>{1, 2, 4, 8}));
  EXPECT_EQ(Tree::at(4, 8).children, (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(Tree::at(0, 4, true).children, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(Tree::at(3, 4, true).parent, 0);
}

/// Mailboxes between threads, one per pair of ranks.
class Mail {
 public:
  void put(std::int32_t from, std::int32_t to, std::string message) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to}].push_back(std::move(message));
    arrived_.notify_all();
  }
  std::string take(std::int32_t from, std::int32_t to) {
    std::unique_lock lock(mutex_);
    std::deque<std::string>& box = boxes_[{from, to}];
    arrived_.wait(lock, [&] { return !box.empty(); });
    std::string message = std::move(box.front());
    box.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::deque<std::string>> boxes_;
};

class MailNetwork final : public Network {
 public:
  MailNetwork(Mail& mail, std::int32_t rank, std::int32_t rank_count)
      : mail_(mail), rank_(rank), rank_count_(rank_count) {}

  Result<void> all_and(std::span<std::uint64_t> words) override {
    const std::string own(reinterpret_cast<const char*>(words.data()), words.size_bytes());
    for (std::int32_t peer = 0; peer < rank_count_; ++peer) mail_.put(rank_, peer, own);
    for (std::int32_t peer = 0; peer < rank_count_; ++peer) {
      const std::string theirs = mail_.take(peer, rank_);
      EXPECT_EQ(theirs.size(), own.size());
      std::vector<std::uint64_t> other(words.size());
      std::copy_n(theirs.data(), theirs.size(), reinterpret_cast<char*>(other.data()));
      for (std::size_t i = 0; i < words.size(); ++i) words[i] &= other[i];
    }
    return {};
  }
  Result<void> send(std::int32_t rank, std::string_view message) override {
    if (fails) return Error{ErrorKind::kRankFailed, "gone"};
    sent.push_back(rank);
    mail_.put(rank_, rank, std::string(message));
    return {};
  }
  Result<std::string> receive(std::int32_t rank) override {
    if (fails) return Error{ErrorKind::kRankFailed, "gone"};
    return garbage.empty() ? mail_.take(rank, rank_) : garbage;
  }

  std::vector<std::int32_t> sent;
  bool fails = false;
  std::string garbage;

 private:
  Mail& mail_;
  std::int32_t rank_, rank_count_;
};

// Goal: cycles over a network do what they do in lockstep: a message per edge and direction.
// Method: ranks as threads; tensors in opposite orders; twice, so that the cache decides.
TEST(RunCycle, AgreesOverANetwork) {
  for (const std::int32_t rank_count : {1, 2, 5, 8, 11}) {
    Mail mail;
    std::vector<std::vector<std::string>> order(static_cast<std::size_t>(rank_count));
    std::vector<std::vector<std::int32_t>> sent(order.size());
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < rank_count; ++rank) {
      threads.emplace_back([&, rank] {
        ControllerOptions options;
        options.rank = rank;
        options.rank_count = rank_count;
        Controller controller(options);
        MailNetwork network(mail, rank, rank_count);
        for (int step = 0; step < 2; ++step) {
          std::vector<std::string> names{"a", "b", "c"};
          if (rank % 2 == 1) std::reverse(names.begin(), names.end());
          for (const std::string& name : names) controller.add({tensor(name)}, {});
          EXPECT_TRUE(run_cycle(controller, network, {}));
          EXPECT_EQ(controller.talks(), step == 0);
          for (const Ready& ready : controller.ready()) {
            order[static_cast<std::size_t>(rank)].push_back(ready.response.request->name);
          }
        }
        sent[static_cast<std::size_t>(rank)] = network.sent;
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::size_t messages = 0;
    for (std::size_t rank = 0; rank < order.size(); ++rank) {
      EXPECT_EQ(order[rank], (std::vector<std::string>{"a", "b", "c", "a", "b", "c"}));
      messages += sent[rank].size();
    }
    EXPECT_EQ(messages, 2 * (order.size() - 1));
    if (rank_count == 11) {
      EXPECT_EQ(sent[0], (std::vector<std::int32_t>{4, 8, 2, 1})) << "the largest subtree first";
    }
  }
}

// Goal: a network that fails ends the cycle with its error; a malformed message with ours.
// Method: rank 0 of two, whose network fails or delivers garbage; and rank 1.
TEST(RunCycle, PassesErrorsOn) {
  for (const std::int32_t rank : {0, 1}) {
    for (const bool fails : {true, false}) {
      ControllerOptions options;
      options.rank = rank;
      options.rank_count = 2;
      Controller controller(options);
      controller.add({tensor("x")}, {});
      Mail mail;
      MailNetwork network(mail, 0, 1);
      network.fails = fails;
      network.garbage = "garbage";
      const Result<void> result = run_cycle(controller, network, {});
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().kind, fails ? ErrorKind::kRankFailed : ErrorKind::kInternal);
    }
  }
}

}  // namespace
}  // namespace farandole::coordinator
