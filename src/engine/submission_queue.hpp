// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace farandole {

/// Lock-free queue of nodes that carry their own link, from any number of submitting threads to the
/// one driver. Nodes of one thread come out in the order in which it pushed them.
///
/// [Dryden18] keeps one single-producer queue per submitting thread. A linked node costs the
/// submitter the same single atomic exchange and needs no registration, no bound and no clean-up
/// when a thread ends.
///
/// Threads   push() and empty() from any thread; take_all() from the driver.
template <class Node>
class SubmissionQueue {
 public:
  void push(Node* node) {
    Node* head = head_.load(std::memory_order_relaxed);
    do {
      node->next = head;
    } while (!head_.compare_exchange_weak(head, node, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
  }

  bool empty() const { return head_.load(std::memory_order_seq_cst) == nullptr; }

  /// Everything pushed so far, oldest first, linked through `next`.
  Node* take_all() {
    if (head_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    Node* newest = head_.exchange(nullptr, std::memory_order_acquire);
    Node* oldest = nullptr;
    while (newest != nullptr) {
      Node* older = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = older;
    }
    return oldest;
  }

 private:
  std::atomic<Node*> head_{nullptr};
};

}  // namespace farandole
