(* One general layer, with all at once: norms before the branch, after it and after the sum, sources, biases, multipliers,
   grouped keys and values; scores with rotary positions; and which terms of scores no softmax sees.

   Norms are held fixed: two-sided maps, as heads are.  So a layer is a list of two-sided maps (the skip connection is
   one of them, and every head is one, with the norms around it folded in) and of sources, and a term takes one map of
   each layer that is above its source: a route. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths Sources.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory.
Local Open Scope ring_scope.

Section Routes.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).
Local Notation stream_type := 'M[R]_(n, d).

Record mapped_layer := MappedLayer { maps : seq head; sources : seq stream_type }.

Implicit Types (X : stream_type) (l : mapped_layer) (layers : seq mapped_layer).

Definition apply_maps l X : stream_type := \sum_(b <- maps l) act b X + \sum_(S <- sources l) S.

Fixpoint mapped_stream layers X : stream_type :=
  if layers is l :: rest then mapped_stream rest (apply_maps l X) else X.

Fixpoint routes layers : seq (seq head) :=
  if layers is l :: rest then [seq b :: p | b <- maps l, p <- routes rest] else [:: [::]].

Fixpoint source_routes layers : seq (seq head * stream_type) :=
  if layers is l :: rest then [seq (p, S) | S <- sources l, p <- routes rest] ++ source_routes rest else [::].

Definition route_terms layers X := [seq (p, X) | p <- routes layers] ++ source_routes layers.

Theorem stream_is_sum_over_routes layers X :
  mapped_stream layers X = \sum_(t <- route_terms layers X) act (virtual_head t.1) t.2.
Proof.
rewrite big_cat big_map /=.
elim: layers X => [|l rest IH] X /=; first by rewrite big_seq1 big_nil addr0 identity_head_acts.
rewrite IH big_cat !big_allpairs_dep /= addrA; congr (_ + _).
rewrite [X in _ = X + _]exchange_big [X in _ = _ + X]exchange_big -big_split; apply: eq_bigr => p _ /=.
rewrite actD !act_sum; congr (_ + _); apply: eq_bigr => b _; by rewrite act_after.
Qed.

(* The streams of before are special cases: the identity head is the skip connection. *)
Theorem stream_is_sum_over_maps (layers : seq (seq head)) X :
  stream layers X = mapped_stream [seq MappedLayer (identity_head R n d :: heads) [::] | heads <- layers] X.
Proof.
elim: layers X => [|heads rest IH] X //=; rewrite IH; congr mapped_stream.
by rewrite /apply_maps big_nil addr0 -identity_head_is_the_residual.
Qed.

(* A multiplier. *)
Definition times (a : R) (h : head) : head := (a *: h.1, h.2).

Lemma times_acts a h X : act (times a h) X = a *: act h X.
Proof. by rewrite /act /= -!scalemxAl. Qed.

End Routes.

Section GeneralLayer.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).
Local Notation stream_type := 'M[R]_(n, d).
Local Notation ones := (ones R n).

Record general_layer := GeneralLayer {
  norm_before : head;                       (* what the heads read goes through it *)
  norm_after : head;                        (* what the branch adds goes through it *)
  norm_sum : head;                          (* and the sum goes through this one *)
  n_heads : nat;
  n_groups : nat;
  group : 'I_n_heads -> 'I_n_groups;        (* heads of a group share keys and values *)
  d_value : 'I_n_groups -> nat;
  pattern : 'I_n_heads -> 'M[R]_n;
  W_O : forall h, 'M[R]_(d, d_value (group h));
  W_V : forall g, 'M[R]_(d_value g, d);
  b_V : forall g, 'cV[R]_(d_value g);
  b_O : 'cV[R]_d;
  other_sources : seq stream_type;          (* outputs of MLPs, held fixed *)
  skip_multiplier : R;
  branch_multiplier : R }.

Implicit Types (l : general_layer) (layers : seq general_layer) (X Y : stream_type).

Definition values l (g : 'I_(n_groups l)) Y := Y *m (W_V g)^T + ones *m (b_V g)^T.

(* Results of heads side by side, times the output matrix, with its bias; and the other sources. *)
Definition branch l Y : stream_type :=
  (\mxrow_h (pattern h *m values (group h) Y)) *m (\mxrow_h @W_O l h)^T + ones *m (b_O l)^T
  + \sum_(S <- other_sources l) S.

Definition general_apply l X : stream_type :=
  act (norm_sum l) (skip_multiplier l *: X
                    + branch_multiplier l *: act (norm_after l) (branch l (act (norm_before l) X))).

Fixpoint general_stream layers X : stream_type :=
  if layers is l :: rest then general_stream rest (general_apply l X) else X.

(* What the branch writes goes through this on its way into the stream. *)
Definition outward l : head := after (norm_sum l) (times (branch_multiplier l) (norm_after l)).

Definition layer_maps l : mapped_layer R n d :=
  MappedLayer
    (after (norm_sum l) (times (skip_multiplier l) (identity_head R n d))
       :: [seq after (outward l) (after (pattern h, W_O h *m W_V (group h)) (norm_before l))
          | h <- index_enum (ordinal_finType (n_heads l))])
    ([seq act (outward l) (pattern h *m (ones *m (W_O h *m b_V (group h))^T)) | h <- index_enum (ordinal_finType (n_heads l))]
       ++ act (outward l) (ones *m (b_O l)^T) :: [seq act (outward l) S | S <- other_sources l]).

Theorem general_layer_is_maps l X : general_apply l X = apply_maps (layer_maps l) X.
Proof.
rewrite /apply_maps /layer_maps big_cons big_cat big_cons !big_map /general_apply /= actD -addrA.
rewrite -act_after times_acts identity_head_acts; congr (_ + _).
rewrite -times_acts act_after -/(outward l) /branch concatenation_is_sum !actD !act_sum -!addrA [RHS]addrA.
congr (_ + _); rewrite -big_split /=; apply: eq_bigr => h _.
by rewrite /values value_bias_is_source actD -!act_after.
Qed.

Theorem general_stream_is_sum_over_routes layers X :
  general_stream layers X = \sum_(t <- route_terms (map layer_maps layers) X) act (virtual_head t.1) t.2.
Proof.
rewrite -stream_is_sum_over_routes; elim: layers X => [|l rest IH] X //=.
by rewrite IH general_layer_is_maps.
Qed.

End GeneralLayer.

(* Scores whose middle matrix depends on the two tokens: entry (i, j) is q_i M_ij k_j^T. *)
Section Rotary.

Variable R : comRingType.
Variables n k : nat.
Variable M : 'I_n -> 'I_n -> 'M[R]_k.

Implicit Types (Q K : 'M[R]_(n, k)).

Definition turned_scores Q K : 'M[R]_n := \matrix_(i, j) (row i Q *m M i j *m (row j K)^T) 0 0.

Theorem turned_scores_of_sums I J (r : seq I) (s : seq J) (F : I -> 'M[R]_(n, k)) (G : J -> 'M[R]_(n, k)) :
  turned_scores (\sum_(i <- r) F i) (\sum_(j <- s) G j) = \sum_(i <- r) \sum_(j <- s) turned_scores (F i) (G j).
Proof.
have row_sum L (u : seq L) (f : L -> 'M[R]_(n, k)) i : row i (\sum_(a <- u) f a) = \sum_(a <- u) row i (f a).
  by apply/rowP => c; rewrite mxE !summxE; apply: eq_bigr => a _; rewrite mxE.
apply/matrixP => i j; rewrite mxE !row_sum !mulmx_suml !summxE; apply: eq_bigr => a _.
rewrite linear_sum mulmx_sumr !summxE; by apply: eq_bigr => b _; rewrite [RHS]mxE.
Qed.

(* Rotary positions turn the query and the key of token i by the i-th power of an orthogonal matrix: what stands between
   them depends on the distance alone. *)
Variable rho : 'M[R]_k.
Hypothesis rho_orthogonal : rho^T *m rho = 1%:M.
Definition turn i : 'M[R]_k := iter i (mulmx rho) 1%:M.

Lemma turn_add i j : turn (i + j) = turn i *m turn j.
Proof. by elim: i => [|i IH] /=; rewrite ?mul1mx // IH mulmxA. Qed.

Lemma turn_orthogonal i : (turn i)^T *m turn i = 1%:M.
Proof.
elim: i => [|i IH] /=; first by rewrite trmx1 mul1mx.
by rewrite trmx_mul mulmxA -(mulmxA _ rho^T) rho_orthogonal mulmx1.
Qed.

Theorem only_distance_matters i m :
  (turn i)^T *m turn (i + m) = turn m /\ (turn (i + m))^T *m turn i = (turn m)^T.
Proof.
split; first by rewrite turn_add mulmxA turn_orthogonal mul1mx.
by rewrite turn_add trmx_mul -mulmxA turn_orthogonal mulmx1.
Qed.

End Rotary.

(* The scores of a head that reads the stream after general layers through the norm N: its own queries, the keys of its
   group, each with a bias, turned.  A side has the terms of the stream and the bias. *)
Section GeneralScores.

Variable R : comRingType.
Variables n d k : nat.
Variables (M : 'I_n -> 'I_n -> 'M[R]_k) (layers : seq (general_layer R n d)) (X : 'M[R]_(n, d)) (N : head R n d).

Definition side (W : 'M[R]_(k, d)) (b : 'cV[R]_k) : 'M[R]_(n, k) :=
  act N (general_stream layers X) *m W^T + ones R n *m b^T.

Definition side_terms (W : 'M[R]_(k, d)) (b : 'cV[R]_k) : seq 'M[R]_(n, k) :=
  [seq act N (act (virtual_head t.1) t.2) *m W^T | t <- route_terms (map (@layer_maps R n d) layers) X]
    ++ [:: ones R n *m b^T].

Theorem general_scores_are_double_sum (W_Q W_K : 'M[R]_(k, d)) (b_Q b_K : 'cV[R]_k) :
  turned_scores M (side W_Q b_Q) (side W_K b_K)
  = \sum_(s <- side_terms W_Q b_Q) \sum_(t <- side_terms W_K b_K) turned_scores M s t.
Proof.
have sums W b : side W b = \sum_(s <- side_terms W b) s.
  by rewrite big_cat big_map big_seq1 /side general_stream_is_sum_over_routes act_sum mulmx_suml.
by rewrite !sums turned_scores_of_sums.
Qed.

End GeneralScores.

(* What softmax does not see: the same number added to all scores of a row.  Of the exponential nothing is used but
   e(x + y) = e(x) e(y), and that it is never zero. *)
Section Softmax.

Variables (F : fieldType) (n : nat) (e : F -> F) (allowed : rel 'I_n).
Hypothesis e_adds : forall x y, e (x + y) = e x * e y.
Hypothesis e_nonzero : forall x, e x != 0.

Definition softmax (S : 'M[F]_n) : 'M[F]_n :=
  \matrix_(i, j) (if allowed i j then e (S i j) / \sum_(l | allowed i l) e (S i l) else 0).

Theorem softmax_sees_no_row_constant (S : 'M[F]_n) (u : 'cV[F]_n) : softmax (S + u *m (ones F n)^T) = softmax S.
Proof.
apply/matrixP => i j; rewrite !mxE; case: ifP => // _.
have added l : (S + u *m (ones F n)^T) i l = S i l + u i 0.
  by rewrite !mxE big_ord1 !mxE mulr1.
rewrite (eq_bigr (fun l => e (S i l) * e (u i 0))) => [|l _]; last by rewrite added e_adds.
rewrite -mulr_suml e_adds big_ord1 !mxE mulr1 invfM mulrACA.
by rewrite divff ?mulr1 // e_nonzero.
Qed.

End Softmax.

(* Such a number is what a term gives whose key side begins with a bias: rows of its patterns sum to one. *)
Theorem bias_keys_give_row_constants (R : comRingType) n d (Q : 'M[R]_(n, d)) (W_QK : 'M[R]_d) (q : seq (head R n d)) b :
  all (fun h => rows_sum_to_one h.1) q ->
  Q *m W_QK *m (act (virtual_head q) (ones R n *m b^T))^T
  = (Q *m W_QK *m ((virtual_head q).2 *m b)) *m (ones R n)^T.
Proof. by move=> sums; rewrite /act (bias_collapses b sums) [(ones R n *m _)^T]trmx_mul trmxK !mulmxA. Qed.
