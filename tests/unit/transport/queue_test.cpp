// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace farandole {
namespace {

struct Node {
  int value = 0;
  Node* next = nullptr;
};
using Queue = IntrusiveQueue<Node>;

std::vector<int> drained(Queue& queue) {
  std::vector<int> values;
  while (Node* node = queue.pop()) values.push_back(node->value);
  return values;
}

// Goal: first in, first out, from either end, also after the queue was empty.
// Method: push and pop in a known order.
TEST(IntrusiveQueue, KeepsOrder) {
  Node nodes[4] = {{0}, {1}, {2}, {3}};
  Queue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pop(), nullptr);
  queue.push_front(nodes[1]);
  queue.push(nodes[2]);
  queue.push_front(nodes[0]);
  EXPECT_EQ(queue.front(), &nodes[0]);
  EXPECT_EQ(drained(queue), (std::vector<int>{0, 1, 2}));
  queue.push(nodes[3]);
  EXPECT_EQ(drained(queue), std::vector<int>{3});
}

// Goal: any item can be taken out and the list stays whole; both ends are the odd cases.
// Method: take each of three in turn, then push another one behind.
TEST(IntrusiveQueue, TakeFirstKeepsTheRest) {
  for (int taken = 0; taken < 3; ++taken) {
    Node nodes[4] = {{0}, {1}, {2}, {9}};
    Queue queue;
    for (int i = 0; i < 3; ++i) queue.push(nodes[i]);
    EXPECT_EQ(queue.take_first([&](const Node& n) { return n.value == taken; }), &nodes[taken]);
    EXPECT_EQ(queue.take_first([](const Node& n) { return n.value == 7; }), nullptr);
    queue.push(nodes[3]);
    std::vector<int> expected = {0, 1, 2, 9};
    expected.erase(expected.begin() + taken);
    EXPECT_EQ(drained(queue), expected);
  }
}

// Goal: take_all() takes what it is told, in order, and allows pushing while it runs.
// Method: odd items leave for another list; one comes back to the end of its own list.
TEST(IntrusiveQueue, TakeAllMovesItemsElsewhere) {
  Node nodes[6] = {{0}, {1}, {2}, {3}, {4}, {5}};
  Queue queue, odd;
  for (Node& node : nodes) queue.push(node);
  queue.take_all([&](Node& node) {
    if (node.value == 0) {
      queue.push(node);
      return true;
    }
    if (node.value % 2 == 0) return false;
    odd.push(node);
    return true;
  });
  EXPECT_EQ(drained(queue), (std::vector<int>{2, 4, 0}));
  EXPECT_EQ(drained(odd), (std::vector<int>{1, 3, 5}));
  queue.take_all([](Node&) { return true; });
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace farandole
