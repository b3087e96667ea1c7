// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/submission_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace farandole {
namespace {

struct Node {
  Node* next = nullptr;
  int thread = 0;
  int index = 0;
};

// Goal: every node comes out once, those of one thread in the order it pushed them.
// Method: four threads push 20,000 nodes each while another one takes.
TEST(SubmissionQueue, KeepsEachThreadsOrder) {
  constexpr int kThreads = 4;
  constexpr int kNodes = 20'000;
  SubmissionQueue<Node> queue;
  std::vector<std::vector<Node>> nodes(kThreads, std::vector<Node>(kNodes));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kNodes; ++i) {
        Node& node = nodes[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)];
        node.thread = t;
        node.index = i;
        queue.push(&node);
      }
    });
  }
  std::array<int, kThreads> expected{};
  for (int taken = 0; taken < kThreads * kNodes;) {
    for (Node* node = queue.take_all(); node != nullptr; ++taken) {
      Node* following = node->next;
      ASSERT_EQ(node->index, expected[static_cast<std::size_t>(node->thread)]++);
      node = following;
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.take_all(), nullptr);
}

}  // namespace
}  // namespace farandole
