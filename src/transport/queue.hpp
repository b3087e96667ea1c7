// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace farandole {

/// A first-in-first-out list linked through Node::next; it owns nothing and allocates nothing.
/// T is Node or derives from it; a node is in one list at a time.
template <class T, class Node = T>
class IntrusiveQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  T* front() const { return static_cast<T*>(first_); }

  void push(T& item) {
    item.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &item;
    last_ = &item;
  }

  void push_front(T& item) {
    item.next = first_;
    first_ = &item;
    if (last_ == nullptr) last_ = &item;
  }

  /// Takes out the first item; null if there is none.
  T* pop() {
    return take_first([](const T&) { return true; });
  }

  /// Takes out the first item for which `wanted` holds; null if there is none.
  template <class Predicate>
  T* take_first(Predicate wanted) {
    Node* before = nullptr;
    for (Node* item = first_; item != nullptr; before = item, item = item->next) {
      if (!wanted(static_cast<T&>(*item))) continue;
      (before != nullptr ? before->next : first_) = item->next;
      if (last_ == item) last_ = before;
      item->next = nullptr;
      return static_cast<T*>(item);
    }
    return nullptr;
  }

  /// Takes out every item for which `finished` holds; the others stay in order. `finished` may push
  /// the item it is asked about to any list, this one included, if it then returns true.
  template <class Predicate>
  void take_all(Predicate finished) {
    IntrusiveQueue kept;
    Node* item = first_;
    first_ = last_ = nullptr;
    while (item != nullptr) {
      Node* next = item->next;
      if (!finished(static_cast<T&>(*item))) kept.push(static_cast<T&>(*item));
      item = next;
    }
    while (T* pushed = pop()) kept.push(*pushed);
    *this = kept;
  }

 private:
  Node* first_ = nullptr;
  Node* last_ = nullptr;
};

}  // namespace farandole
