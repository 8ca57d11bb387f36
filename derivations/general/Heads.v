(* Heads as two-sided maps.

   Row convention: a stream X has one row for each token, n rows and d columns.
   A head is a pair (A, W): A mixes the tokens (n x n, its attention pattern, held fixed) and
   W = W_OV maps what is read to what is written (d x d).  It acts by  X |-> A X W^T,  which the
   paper writes (A (x) W) X.  All entries are taken from an arbitrary commutative ring R. *)

From mathcomp Require Import all_ssreflect all_algebra.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory.
Local Open Scope ring_scope.

Section TwoSidedMaps.

Variable R : comRingType.
Variables n d : nat.

Implicit Types (X Y : 'M[R]_(n, d)).

Definition head := ('M[R]_n * 'M[R]_d)%type.

(* (A, W) acts on a stream. *)
Definition act (h : head) X : 'M[R]_(n, d) := h.1 *m X *m h.2^T.

(* The identity head leaves every stream as it is. *)
Definition identity_head : head := (1%:M, 1%:M).

(* "g after h": both sides are multiplied, in the same order. *)
Definition after (g h : head) : head := (g.1 *m h.1, g.2 *m h.2).

Theorem identity_head_acts X : act identity_head X = X.
Proof. by rewrite /act trmx1 mul1mx mulmx1. Qed.

(* Mixed product: (A2 (x) W2) ((A1 (x) W1) X) = (A2 A1 (x) W2 W1) X.  Two heads in a row are one virtual head. *)
Theorem mixed_product (A2 A1 : 'M[R]_n) (W2 W1 : 'M[R]_d) X :
  act (A2, W2) (act (A1, W1) X) = act (A2 *m A1, W2 *m W1) X.
Proof. by rewrite /act /= trmx_mul !mulmxA. Qed.

(* The same for heads that are not written as pairs. *)
Lemma act_after g h X : act g (act h X) = act (after g h) X.
Proof. by rewrite /act /= trmx_mul !mulmxA. Qed.

(* A head is linear in the stream that it reads (its pattern is held fixed). *)
Lemma act0 h : act h 0 = 0.
Proof. by rewrite /act mulmx0 mul0mx. Qed.

Lemma actD h X Y : act h (X + Y) = act h X + act h Y.
Proof. by rewrite /act mulmxDr mulmxDl. Qed.

Lemma act_sum h I (r : seq I) (F : I -> 'M[R]_(n, d)) :
  act h (\sum_(i <- r) F i) = \sum_(i <- r) act h (F i).
Proof. by apply: (big_morph _ (actD h) (act0 h)). Qed.

End TwoSidedMaps.

Section InsideAHead.

Variable R : comRingType.
Variables n d : nat.

(* A head in three steps (values, mixing, output) is the pair (A, W_O W_V). *)
Theorem head_in_three_steps k (A : 'M[R]_n) (W_O : 'M[R]_(d, k)) (W_V : 'M[R]_(k, d)) X :
  (A *m (X *m W_V^T)) *m W_O^T = act (A, W_O *m W_V) X.
Proof. by rewrite /act /= trmx_mul !mulmxA. Qed.

(* Concatenated results of two heads, times the output matrix (W_O1 W_O2), are a sum. *)
Theorem concatenation_of_two k1 k2 (r1 : 'M[R]_(n, k1)) (r2 : 'M[R]_(n, k2))
    (W_O1 : 'M[R]_(d, k1)) (W_O2 : 'M[R]_(d, k2)) :
  row_mx r1 r2 *m (row_mx W_O1 W_O2)^T = r1 *m W_O1^T + r2 *m W_O2^T.
Proof. by rewrite tr_row_mx mul_row_col. Qed.

(* The same for any number H of heads, of head dimensions k 0, k 1, ... that may differ. *)
Theorem concatenation_is_sum H (k : 'I_H -> nat)
    (r : forall h, 'M[R]_(n, k h)) (W_O : forall h, 'M[R]_(d, k h)) :
  (\mxrow_h r h) *m (\mxrow_h W_O h)^T = \sum_h r h *m (W_O h)^T.
Proof. by rewrite tr_mxrow mul_mxrow_mxcol. Qed.

(* So the attention layer, written with concatenation, is the sum of its heads. *)
Theorem concatenated_layer_is_sum_of_heads H (k : 'I_H -> nat) (A : 'I_H -> 'M[R]_n)
    (W_O : forall h, 'M[R]_(d, k h)) (W_V : forall h, 'M[R]_(k h, d)) (X : 'M[R]_(n, d)) :
  (\mxrow_h (A h *m (X *m (W_V h)^T))) *m (\mxrow_h W_O h)^T
  = \sum_h act (A h, W_O h *m W_V h) X.
Proof.
rewrite concatenation_is_sum; apply: eq_bigr => h _.
exact: head_in_three_steps.
Qed.

End InsideAHead.
