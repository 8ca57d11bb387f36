(* Terms by order and by head: what the paper's algorithm for the importance of terms computes, and what the
   ablation of a head takes away, both with the patterns held fixed. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory.
Local Open Scope ring_scope.

Section Orders.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).
Local Notation stream_type := 'M[R]_(n, d).

Implicit Types (X : stream_type) (layers : seq (seq head)) (runs : nat -> stream_type).

(* The algorithm runs the model again and again.  In run 0 nothing is added to the stream; in run k + 1 a head
   adds what it would have written in run k.  `runs k` is the stream of run k where the layer reads it. *)
Definition next_layer (heads : seq head) runs k : stream_type :=
  if k is k'.+1 then runs k + \sum_(h <- heads) act h (runs k') else runs 0%N.

Fixpoint rerun layers runs : nat -> stream_type :=
  if layers is heads :: rest then rerun rest (next_layer heads runs) else runs.

Lemma rerun_sum layers runs k :
  rerun layers runs k
  = \sum_(p <- paths layers | (size p <= k)%N) act (virtual_head p) (runs (k - size p)%N).
Proof.
elim: layers runs => [|heads rest IH] runs /=.
  by rewrite big_cons big_nil addr0 identity_head_acts subn0.
rewrite IH big_cat /= [X in _ = _ + X]big_mkcond big_allpairs_dep exchange_big /=.
rewrite [X in _ = X + _]big_mkcond -big_split [LHS]big_mkcond /=.
apply: eq_bigr => p _.
case: (ltngtP (size p) k) => [below | above | exact_].
- have -> : (k - size p)%N = (k - (size p).+1).+1 by rewrite subnS prednK // subn_gt0.
  rewrite actD act_sum; congr (_ + _).
  by apply: eq_bigr => h _; rewrite act_after.
- by rewrite big1 ?addr0.
- by rewrite exact_ subnn big1 ?addr0.
Qed.

(* Run k holds exactly the terms of order at most k. *)
Theorem term_importance_truncates layers X k :
  rerun layers (fun _ => X) k
  = \sum_(p <- paths layers | (size p <= k)%N) (virtual_head p).1 *m X *m (virtual_head p).2^T.
Proof. exact: rerun_sum. Qed.

(* No path is longer than there are layers, and so the last run is the model. *)
Lemma order_at_most_depth layers : all (fun p => size p <= size layers)%N (paths layers).
Proof.
elim: layers => //= heads rest IH; rewrite all_cat; apply/andP; split.
  by apply: sub_all IH => p /leqW.
by elim: heads => //= h heads IHh; rewrite all_cat IHh andbT all_map.
Qed.

Theorem last_run_is_the_model layers X k :
  (size layers <= k)%N -> rerun layers (fun _ => X) k = stream layers X.
Proof.
move=> deep; rewrite term_importance_truncates stream_is_sum_over_paths.
rewrite -big_filter (all_filterP _) //.
by apply: sub_all (order_at_most_depth layers) => p /leq_trans; apply.
Qed.

(* Layers one after the other. *)
Lemma stream_cat layers1 layers2 X : stream (layers1 ++ layers2) X = stream layers2 (stream layers1 X).
Proof. by elim: layers1 X => //=. Qed.

(* A path, and then another. *)
Lemma act_path_cat p q X : act (virtual_head (p ++ q)) X = act (virtual_head q) (act (virtual_head p) X).
Proof. by rewrite !path_acts_by_its_heads foldl_cat. Qed.

(* Ablating a head, all patterns kept, takes away exactly the terms of the paths through it:
   a path below, the head, a path above. *)
Theorem ablation_takes_the_terms_through before heads1 h heads2 behind X :
  stream (before ++ (heads1 ++ h :: heads2) :: behind) X
  = stream (before ++ (heads1 ++ heads2) :: behind) X
    + \sum_(p <- paths before) \sum_(q <- paths behind) act (virtual_head (p ++ h :: q)) X.
Proof.
rewrite !stream_cat /=; set Y := stream before X.
have -> : layer (heads1 ++ h :: heads2) Y = layer (heads1 ++ heads2) Y + act h Y.
  by rewrite /layer !big_cat big_cons /= -!addrA [act h Y + _]addrC.
rewrite stream_adds; congr (_ + _).
rewrite [RHS]exchange_big stream_is_sum_over_paths; apply: eq_bigr => q _ /=.
rewrite /Y stream_is_sum_over_paths -/(act _ _) act_sum act_sum; apply: eq_bigr => p _.
by rewrite act_path_cat /= -act_after.
Qed.

End Orders.
